use super::*;
use crate::exit;
use std::time::Duration;
use stoker_cpu_offload as _;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

fn settings(overrides: &[&str]) -> Settings {
    let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    Settings::load(&stoker_config::Sources { overrides, ..Default::default() }).unwrap().0
}

/// What every rank does at least once in a step.
fn meet(rank: &Rank) -> Result<()> {
    Ok(rank.inner().communicator().barrier("meet")?.wait()?)
}

#[test]
fn every_rank_works_on_a_thread_of_its_name() {
    let results = launch(&settings(&["run.ranks=3", "train.batch_size=3"]), |rank| {
        meet(rank)?;
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        Ok((rank.number(), rank.world(), thread))
    });
    let expected = [0, 1, 2].map(|rank| (rank, 3, format!("rank-{rank}")));
    assert_eq!(results.unwrap(), expected);
}

#[test]
fn an_error_in_the_work_ends_the_others_and_is_the_cause() {
    let error = launch(&settings(&["run.ranks=3", "train.batch_size=3"]), |rank| {
        if rank.number() == 2 {
            // The others are likely to wait by now.
            std::thread::sleep(Duration::from_millis(50));
            return Err(Error::other("no luck"));
        }
        meet(rank)
    });
    let error = error.unwrap_err();
    assert_eq!(error.chain(), "rank 2 failed: no luck");
    assert_eq!(error.exit_code(), exit::OTHER);
}

#[test]
fn a_panic_in_the_work_ends_the_others_and_is_the_cause() {
    let error = launch(&settings(&["run.ranks=2"]), |rank| {
        if rank.number() == 1 {
            panic!("out of luck");
        }
        meet(rank)
    });
    let error = error.unwrap_err();
    assert_eq!(error.chain(), "rank 1 failed: panic: out of luck");
    assert_eq!(error.exit_code(), exit::RANK_LOST);
}

#[test]
fn a_silent_rank_is_named_within_the_timeout() {
    let settings = settings(&["run.ranks=2", "run.timeout_seconds=0.2"]);
    let error = launch(&settings, |rank| {
        if rank.number() == 1 {
            std::thread::sleep(Duration::from_secs(1));
        }
        meet(rank)
    });
    let error = error.unwrap_err();
    assert!(error.chain().contains("was not done within 0.2 s; waited for: rank 1."), "{}", error.chain());
    assert_eq!(error.exit_code(), exit::RANK_LOST);
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let error = launch(&settings(&["run.ranks=2"]), |rank| if rank.number() == 0 { Ok(()) } else { meet(rank) });
    assert_eq!(error.unwrap_err().chain(), "rank 1 failed: rank 0 is lost: it left the group");
}

#[test]
fn a_linear_rate_needs_the_number_of_steps() {
    let settings = settings(&["learning_rate.schedule=linear"]);
    let error = launch(&settings, |rank| rank.step(|| panic!("it is never called")).map(|_| ())).unwrap_err();
    assert!(error.chain().contains("call `Rank::plan_steps` first"), "{}", error.chain());
}

stoker_core::inventory::submit! {
    registry::Plugin {
        name: "one-short",
        description: "a rank too few",
        options: &[],
        build: registry::Build::Communicator(|_, group| {
            Ok(stoker_threads::group(group.world - 1, group.timeout))
        }),
    }
}

#[test]
fn a_communicator_of_another_number_of_ranks_is_refused() {
    let error = launch(&settings(&["run.ranks=2", "communicator.name=one-short"]), |_| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "communicator `one-short` has 1 ranks in this process, run.ranks = 2: only communicators whose ranks are all \
         threads of one process can be used here"
    );
}
