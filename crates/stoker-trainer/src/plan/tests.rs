use super::*;
use stoker_core::Role;
use stoker_cpu_offload as _;
use stoker_engine::LimitKind;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

fn settings(overrides: &[&str]) -> Settings {
    let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    Settings::load(&stoker_config::Sources { overrides, ..Default::default() }).unwrap().0
}

/// The plan is what a run's books then have, and no more: shards to the byte.
#[test]
fn a_plan_says_what_training_has() {
    for (world, stage) in [(1, 0), (2, 3)] {
        let [ranks, stage] = [format!("run.ranks={world}"), format!("zero.stage={stage}")];
        let keys = ["data.source=builtin", "data.train_records=64", "data.valid_records=20", "train.max_steps=1"];
        let settings = settings(&[&keys[..], &["precision.compute=bf16", &ranks, &stage]].concat());
        let planned = plan(&settings).unwrap();
        assert!(planned.fits, "{planned}");
        let trained = crate::train(&settings, &Default::default()).unwrap();
        for role in ["parameters", "master_parameters", "gradients", "optimizer_state"] {
            assert_eq!(planned.needed_bytes["host"][role], trained.peak_bytes["host"][role], "{role}");
        }
        let device = planned.needed_bytes_of_a_rank["device"]["total"];
        assert!(device >= trained.peak_bytes_of_a_rank["device"]["total"], "{planned}");
        assert_eq!((planned.model, planned.parameters), (trained.model, trained.parameters));
    }
}

/// 9 GB of states are planned without any of them: what this process has at most tells.
#[test]
fn planning_a_large_model_takes_no_memory() {
    let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = || {
        let status = status();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let before = peak();
    let planned = plan(&settings(&["model.name=seednet", "host.memory_limit=1 TiB"])).unwrap();
    assert_eq!(planned.parameters, 561_046_578);
    assert!(planned.needed_bytes["host"]["total"] >= 561_046_578 * 16, "{planned}");
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 256 << 10, "{} KiB", after - before);
    }
}

#[test]
fn the_whole_report_is_for_people() {
    let limit = |bytes, source: &str, ranks, needed, with_device| {
        let (source, kind) = (source.to_owned(), LimitKind::Target);
        Limit { bytes, source, kind, ranks, needed, with_device }
    };
    let place = |place, role, bytes, limits, advice: &[&str]| {
        let advice = advice.iter().map(|&text| text.to_owned()).collect();
        PlacePlan { place, roles: [(role, bytes)].into(), limits, advice }
    };
    let plan = |machine| MemoryPlan {
        places: vec![
            place(Place::Device, Role::Slab, 1024, vec![], &[]),
            place(
                Place::Host,
                Role::OptimizerState,
                2048,
                vec![
                    limit(4096, "offload.cpu-offload.capacity", 1, 2048, false),
                    limit(machine, "MemAvailable", 2, 6144, true),
                ],
                if machine < 6144 { &["one", "another"] } else { &[] },
            ),
        ],
        pinned: 512,
    };
    let report = |plans: Vec<MemoryPlan>| {
        let planned = plans.into_iter().map(|plan| (plan, 62_006)).collect();
        let report = PlanReport::new(&settings(&["run.ranks=2"]), planned).unwrap();
        PlanReport { locked_memory: Some("8.0 MiB".to_owned()), ..report }
    };
    let expected = "\
model           lenet, 62,006 parameters
run             2 ranks, ZeRO stage 3, shards in cpu-offload
needed memory                         all ranks      one rank
  device                                2.0 KiB       1.0 KiB
    slab                                2.0 KiB       1.0 KiB
  host                                  4.0 KiB       2.0 KiB
    optimizer state                     4.0 KiB       2.0 KiB
limits of rank 1
  device        the host's
  host          2.0 KiB of 4.0 KiB (offload.cpu-offload.capacity)
  host          6.0 KiB of 5.0 KiB (MemAvailable), 2 ranks together, with what is on the device, which is the host: too much
pinned          512 B of each rank's host memory (`ulimit -l`, 8.0 MiB here, does not bind NVIDIA's driver)
not counted     activations and temporaries of the computation (Burn's); buffers of copies and collectives
verdict         it does not fit
would help      host: one; another
";
    // The first rank finds enough, the second does not.
    let report_of_two = report(vec![plan(8192), plan(5120)]);
    assert_eq!((report_of_two.to_string().as_str(), report_of_two.fits), (expected, false));
    let fits = report(vec![plan(8192), plan(8192)]);
    assert!(fits.fits && fits.to_string().ends_with("verdict         it fits\n"), "{fits}");
}

#[test]
fn the_limit_of_locked_memory_is_read() {
    let limits = |soft: &str| {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         {soft}              8388608              bytes     \n"
        )
    };
    assert_eq!(locked_memory(&limits("65536")), Some("64.0 KiB".to_owned()));
    assert_eq!(locked_memory(&limits("unlimited")), Some("unlimited".to_owned()));
    assert_eq!(locked_memory(""), None);
}
