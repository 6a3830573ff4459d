//! A rank that fails ends the work of all: every rank gets an error that names it, and nothing hangs.

use burn::tensor::{Device, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stoker_burn::{Error, Rank};
use stoker_core::Communicator;
use stoker_testkit::faults::{Collective, Fault, FaultyCommunicator, Gate, gate};
use stoker_tests::models::{Chain, Kind};
use stoker_tests::{Setup, run_ranks};

/// Where a rank fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Build,
    Forward,
    Gather,
    Backward,
    Step,
    Evaluate,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Errs,
    Panics,
    IsSilent,
}

const PHASES: [Phase; 6] = [Phase::Build, Phase::Forward, Phase::Gather, Phase::Backward, Phase::Step, Phase::Evaluate];
const WAYS: [How; 3] = [How::Errs, How::Panics, How::IsSilent];

struct Injection {
    world: usize,
    culprit: usize,
    phase: Phase,
    how: How,
    /// Which step or call.
    at: usize,
    overlap: bool,
}

impl Injection {
    /// The culprit's communicator, if it is there that it fails.
    fn wrap(&self, communicator: Arc<dyn Communicator>, gate: &Gate) -> Arc<dyn Communicator> {
        let (kind, calls) = match self.phase {
            Phase::Build => (Collective::Barrier, 2),
            Phase::Gather => (Collective::AllGather, 12),
            Phase::Backward => (Collective::ReduceScatter, 6),
            Phase::Step => (Collective::AllReduce, 4),
            Phase::Forward | Phase::Evaluate => return communicator,
        };
        let fault = match self.how {
            How::Errs => Fault::Fail("the test wants it".to_owned()),
            How::Panics => Fault::Panic("the test wants it".to_owned()),
            How::IsSilent => Fault::Silent(gate.clone()),
        };
        Arc::new(FaultyCommunicator::new(communicator, kind, (self.at % calls) as u64, fault))
    }

    /// What the culprit does in its own code.
    fn misbehave(&self, gate: &Gate) {
        if self.how == How::IsSilent {
            gate.pass();
        }
        panic!("the test wants it");
    }

    fn work(&self, rank: &Rank, gate: &Gate) -> Result<(), Error> {
        let device = rank.device();
        let culprit = rank.communicator().rank() == self.culprit;
        let chain = rank.build(|device| Chain::new(Kind::Norm, 3, 8, None, device), None)?;
        for step in 0..2 {
            rank.step(1e-3, || {
                let x = chain.flat(Tensor::ones([2, 8], &device));
                if culprit && self.phase == Phase::Forward && step == self.at % 2 {
                    self.misbehave(gate);
                }
                x.square().mean()
            })?;
        }
        rank.evaluate(|| {
            if culprit && self.phase == Phase::Evaluate {
                self.misbehave(gate);
            }
            chain.flat(Tensor::ones([2, 8], &stoker_tests::device()))
        })?;
        rank.sum("the end", &[1.0])?;
        Ok(())
    }

    fn run(&self) {
        let mut setup = Setup::new(self.world, 3);
        setup.timeout = Duration::from_millis(if self.how == How::IsSilent { 150 } else { 20_000 });
        setup.settings.overlap = self.overlap;
        // Nothing stays gathered for long, so there are many gathers to fail in.
        setup.settings.pool_bytes = 1;
        let (opener, gate) = gate();
        let opener = Mutex::new(Some(opener));
        let finished = AtomicUsize::new(0);
        let results = run_ranks(setup.communicators(), |communicator| {
            let number = communicator.rank();
            let communicator = if number == self.culprit { self.wrap(communicator, &gate) } else { communicator };
            let result = self.work(&setup.rank(communicator), &gate);
            // A silent rank is let go when all others have noticed.
            if number != self.culprit && finished.fetch_add(1, Ordering::SeqCst) + 2 == self.world {
                drop(opener.lock().unwrap().take());
            }
            result
        });
        for (number, result) in results.into_iter().enumerate() {
            let Err(error) = result else { panic!("rank {number} ended well: {self}") };
            let error = error.to_string();
            if number == self.culprit {
                let own = error.contains("the test wants it") || error.contains("silent") || error.contains("rank");
                assert!(own, "{self}: the culprit says: {error}");
            } else {
                assert!(error.contains(&format!("rank {}", self.culprit)), "{self}: rank {number} says: {error}");
            }
        }
    }
}

impl std::fmt::Display for Injection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { world, culprit, phase, how, at, overlap } = self;
        write!(f, "rank {culprit} of {world} {how:?} in {phase:?} at {at}, overlap {overlap}")
    }
}

#[test]
fn two_hundred_failures_are_told_to_every_rank() {
    // Expected panics would flood the output.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("the test wants it") {
            usual(panic);
        }
    }));
    for seed in 0..200usize {
        let world = 2 + seed / 7 % 2;
        Injection {
            world,
            culprit: seed / 3 % world,
            phase: PHASES[seed % PHASES.len()],
            how: WAYS[seed / PHASES.len() % WAYS.len()],
            at: seed.wrapping_mul(2_654_435_761) >> 7,
            overlap: seed % 5 != 0,
        }
        .run();
    }
}

#[test]
fn ranks_with_different_models_are_told() {
    let setup = Setup::new(2, 3);
    let errors = setup.run(|rank| {
        let width = 8 + 8 * rank.communicator().rank();
        rank.build(|device| Chain::new(Kind::Linear, 2, width, None, device), None).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("ranks disagree") && error.contains("build of 2 units"), "{error}");
    }
}

#[test]
fn ranks_that_call_different_units_are_told() {
    let setup = Setup { timeout: Duration::from_secs(20), ..Setup::new(2, 3) };
    let errors = setup.run(|rank| {
        let device = rank.device();
        let second = rank.communicator().rank() == 1;
        let make = |device: &Device| {
            [Chain::new(Kind::Linear, 1, 8, None, device), Chain::new(Kind::Norm, 1, 8, None, device)]
        };
        let [first, other] = rank.build(make, None).unwrap();
        let chain = if second { other } else { first };
        rank.step(1e-3, || chain.flat(Tensor::ones([2, 8], &device)).mean()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("ranks disagree") && error.contains("gather"), "{error}");
    }
}
