//! What does not fit is refused before any rank allocates, whoever comes first.

use crate::training::Run;
use std::sync::{Arc, Mutex};
use stoker_core::offload::Allowance;
use stoker_core::{Bound, OffloadTarget, Place, Region, RegionSpec, Result as CoreResult, TargetTraits};
use stoker_engine::{DeviceRoom, Engine, Error, LimitKind, MemoryPlan, Plugins};
use stoker_testkit::ranks;

/// What the ranks of a test do to their targets, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Asked,
    Allocated,
}

/// The memory that the targets of all ranks take from.
#[derive(Debug, Clone, Default)]
struct Machine {
    bytes: u64,
    used: Allowance,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Machine {
    fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    fn saw(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn count(&self, event: Event) -> usize {
        self.events.lock().unwrap().iter().filter(|seen| **seen == event).count()
    }

    /// The target of a rank, which may have `own` bytes itself.
    fn target(&self, inner: Arc<dyn OffloadTarget>, own: Option<u64>) -> Arc<dyn OffloadTarget> {
        Arc::new(Metered { inner, machine: self.clone(), own })
    }
}

/// A target that counts, and whose bounds are a machine's that it takes from.
#[derive(Debug)]
struct Metered {
    inner: Arc<dyn OffloadTarget>,
    machine: Machine,
    own: Option<u64>,
}

impl OffloadTarget for Metered {
    fn traits(&self) -> TargetTraits {
        self.inner.traits()
    }

    fn bounds(&self) -> Vec<Bound> {
        self.machine.saw(Event::Asked);
        let left = self.machine.bytes.saturating_sub(self.machine.used.used());
        let own = self.own.map(|bytes| Bound { bytes, shared: false, source: "own".to_owned() });
        own.into_iter().chain([Bound { bytes: left, shared: true, source: "machine".to_owned() }]).collect()
    }

    fn allocate(&self, spec: RegionSpec) -> CoreResult<Box<dyn Region>> {
        self.machine.saw(Event::Allocated);
        // For good: what is left must only fall.
        std::mem::forget(self.machine.used.take(spec.bytes(), u64::MAX));
        self.inner.allocate(spec)
    }
}

/// What the engine of each rank comes to on this machine.
fn built(run: &Run, machine: &Machine, own: Option<u64>) -> Vec<Result<(), Error>> {
    ranks::run(run.communicators(), |communicator| {
        let plugins = run.plugins(communicator.clone());
        let plugins = Plugins { target: machine.target(plugins.target, own), ..plugins };
        let built = run.engine(plugins).map(drop);
        if let Err(error) = &built {
            communicator.abort(&error.to_string());
        }
        built
    })
}

fn planned(run: &Run) -> MemoryPlan {
    let plan = |communicator| {
        let plugins = run.plugins(communicator);
        Engine::plan(&run.settings, &run.device(0), &plugins, &run.model.specs()).unwrap()
    };
    ranks::run(run.communicators(), plan).remove(0)
}

/// A byte more or less decides, and it is the bytes of all ranks that do.
#[test]
fn ranks_are_held_against_their_machine_together() {
    for world in [1, 2, 3] {
        for stage in [0, 3] {
            for seed in 0..8 {
                let run = Run { delays: true, seed, ..Run::new(world, stage) };
                let of_a_rank = planned(&run).needed(Place::Host);
                let of_all = of_a_rank * world as u64;

                let enough = Machine::of(of_all);
                let results = built(&run, &enough, None);
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                let events = enough.events.lock().unwrap().clone();
                let first = events.iter().position(|event| *event == Event::Allocated).unwrap();
                assert_eq!(events[..first], vec![Event::Asked; world], "a rank allocated before another asked");
                assert_eq!(enough.used.used(), of_all, "the plan is not what is allocated");

                let scarce = Machine::of(of_all - 1);
                let errors: Vec<_> = built(&run, &scarce, None).into_iter().map(Result::unwrap_err).collect();
                assert_eq!(scarce.count(Event::Allocated), 0, "{errors:?}");
                let refused = errors.iter().find_map(|error| match error {
                    Error::DoesNotFit { place, needed, ranks, limit, source_of_limit, .. } => {
                        Some((*place, *needed, *ranks, *limit, source_of_limit.as_str()))
                    }
                    _ => None,
                });
                assert_eq!(refused, Some((Place::Host, of_all, world, of_all - 1, "machine")), "{errors:?}");
            }
        }
    }
}

#[test]
fn a_refusal_has_the_bytes_by_role_and_advice() {
    let run = Run::new(2, 0);
    let errors = built(&run, &Machine::of(64), None);
    let told = errors.into_iter().map(|error| error.unwrap_err().to_string());
    let error = told.into_iter().find(|error| error.starts_with("the model does not fit")).unwrap();
    for part in [
        "bytes of host memory are needed by 2 ranks together (parameters ",
        ", optimizer_state ",
        "the limit is 64 (machine). What would help: zero.stage = 3",
        "an offload target that keeps shards on disk",
        "host.memory_limit, if there is more than the machine says",
    ] {
        assert!(error.contains(part), "`{part}` is missing: {error}");
    }
    assert!(!error.contains("run.ranks"), "more ranks need more: {error}");
}

/// What a target has for itself is not shared by the ranks.
#[test]
fn a_target_of_each_rank_is_held_against_a_rank() {
    let run = Run::new(2, 3);
    let of_a_rank = planned(&run).needed(Place::Host);
    assert!(built(&run, &Machine::of(1 << 30), Some(of_a_rank)).iter().all(Result::is_ok));
    let machine = Machine::of(1 << 30);
    assert!(built(&run, &machine, Some(of_a_rank - 1)).iter().all(Result::is_err));
    assert_eq!(machine.count(Event::Allocated), 0);
}

#[test]
fn what_the_user_says_of_host_memory_stands_for_what_the_machine_says() {
    let mut run = Run::new(2, 3);
    run.settings.host_memory_limit = Some(1 << 20);
    assert!(built(&run, &Machine::of(0), None).iter().all(Result::is_ok));
    run.settings.host_memory_limit = Some(64);
    let machine = Machine::of(1 << 30);
    let errors: Vec<_> = built(&run, &machine, None).into_iter().map(|built| built.unwrap_err().to_string()).collect();
    assert_eq!(machine.count(Event::Allocated), 0);
    let wanted = "the limit is 64 (host.memory_limit, a rank's part)";
    assert!(errors.iter().any(|error| error.contains(wanted) && error.contains("a larger host.memory_limit")));
}

/// Ranks on one device share what its driver says is free.
#[test]
fn ranks_are_held_against_the_memory_of_their_device() {
    let mut run = Run::new(2, 3);
    let needed = planned(&run).needed(Place::Device);
    for (ranks, free, limit, fits) in [
        (1, needed, None, true),
        (1, needed - 1, None, false),
        (2, 2 * needed, None, true),
        (2, 2 * needed - 1, None, false),
        (1, 1 << 30, Some(needed - 1), false),
        (2, 1 << 30, Some(2 * needed), true),
        (2, 1 << 30, Some(2 * needed - 1), false),
    ] {
        run.memory = DeviceRoom::Own { free, ranks };
        run.settings.device_memory_limit = limit;
        let machine = Machine::of(1 << 30);
        let results = built(&run, &machine, None);
        assert_eq!(results.iter().all(Result::is_ok), fits, "{ranks} {free} {limit:?} {results:?}");
        assert_eq!(machine.count(Event::Allocated) > 0, fits);
        let plan = planned(&run);
        assert_eq!(plan.fits(), fits);
        let driver = plan.places[0].limits.iter().find(|limit| limit.kind == LimitKind::Driver).unwrap();
        assert_eq!((driver.bytes, driver.ranks, driver.needed), (free, ranks, needed * ranks as u64));
    }
    // The books have a rank's part of it.
    run.memory = DeviceRoom::Own { free: 2 * needed, ranks: 2 };
    run.settings.device_memory_limit = None;
    run.parameters();
}

/// Where the device is the host, what is on it is in the machine's memory too.
#[test]
fn a_device_that_is_the_host_takes_from_the_machine() {
    let run = Run { memory: DeviceRoom::Host, ..Run::new(2, 3) };
    let plan = planned(&run);
    let all = 2 * (plan.needed(Place::Host) + plan.needed(Place::Device));
    assert!(built(&run, &Machine::of(all), None).iter().all(Result::is_ok));
    let errors: Vec<_> = built(&run, &Machine::of(all - 1), None).into_iter().map(Result::unwrap_err).collect();
    let told = errors.iter().map(Error::to_string).find(|error| error.contains(&format!("{all} bytes of host")));
    assert!(told.is_some_and(|error| error.contains("slab ")), "{errors:?}");
}

#[test]
fn what_will_be_pinned_is_what_crosses() {
    let run = Run::new(1, 3);
    let roles = planned(&run).places.into_iter().find(|place| place.place == Place::Host).unwrap().roles;
    let of = |role| roles[&role];
    let crosses = of(stoker_core::Role::Parameters) + of(stoker_core::Role::Gradients);
    assert_eq!(planned(&run).pinned, crosses);
    assert_eq!(planned(&Run { staged: true, ..run }).pinned, 0, "what the host cannot address is not pinned");
}
