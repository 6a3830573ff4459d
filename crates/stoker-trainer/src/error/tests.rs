use super::*;
use stoker_core::{DType, Place, Role};
use stoker_engine::NotFinite;

fn full() -> CoreError {
    CoreError::Full {
        unit: "fc1".into(),
        role: Role::Parameters,
        place: Place::Host,
        needed: 2,
        available: 1,
        advice: "Buy more".into(),
    }
}

fn on_rank(error: impl Into<Error>) -> Error {
    Error::Rank { rank: 1, source: Box::new(error.into()) }
}

#[test]
fn what_does_not_fit_is_3_wherever_it_stands() {
    let wrapped = CoreError::Plugin { plugin: "mine".into(), doing: "allocating".into(), source: Box::new(full()) };
    let planned = EngineError::DoesNotFit {
        place: Place::Device,
        needed: 2,
        limit: 1,
        ranks: 1,
        source_of_limit: "a test".to_owned(),
        breakdown: vec![],
        advice: vec!["zero.stage = 3".into()],
    };
    for error in [
        Error::from(full()),
        on_rank(BurnError::from(full())),
        on_rank(planned),
        on_rank(wrapped),
        Error::other(Error::from(full())),
    ] {
        assert_eq!(error.exit_code(), exit::DOES_NOT_FIT, "{error:?}");
        assert_eq!(error.closeness(), Closeness::Cause);
    }
}

#[test]
fn codes_of_the_others() {
    let lost = || CoreError::RankLost { rank: 0, reason: "gone".into() };
    let late = || CoreError::Timeout { what: "a barrier".into(), seconds: 1.0, late: vec!["rank 1".into()] };
    let unknown = CoreError::UnknownPlugin { kind: "optimizer", name: "x".into(), registered: vec![], nearest: None };
    let wrong_type = CoreError::WrongType { what: "a shard".into(), found: DType::F16, wanted: DType::F32 };
    let nothing = EngineError::NothingTrained {
        skips: 50,
        step: 60,
        loss_scale: 1.0,
        not_finite: NotFinite { parameter: "fc1.weight".into(), rank: Some(1) },
        advice: "rest",
    };
    let group = BurnError::TwoGroups { path: "fc1.bias".into(), one: "a".into(), other: "b".into() };
    let weights = BurnError::WeightsFile { file: "w".into(), problem: "is not there".into() };
    assert_eq!(on_rank(BurnError::from(lost())).exit_code(), exit::RANK_LOST);
    assert_eq!(on_rank(late()).exit_code(), exit::RANK_LOST);
    assert_eq!(on_rank(Error::Panicked("oh".into())).exit_code(), exit::RANK_LOST);
    assert_eq!(Error::from(unknown).exit_code(), exit::USAGE);
    assert_eq!(Error::from(SamplerError::EmptyBatch).exit_code(), exit::USAGE);
    assert_eq!(Error::from(DataError::Missing { file: "f".into() }).exit_code(), exit::DATA);
    assert_eq!(on_rank(weights).exit_code(), exit::DATA);
    assert_eq!(on_rank(nothing).exit_code(), exit::NOTHING_TRAINED);
    assert_eq!(on_rank(group).exit_code(), exit::USAGE);
    assert_eq!(on_rank(wrong_type).exit_code(), exit::OTHER);
    assert_eq!(Error::other("whatever").exit_code(), exit::OTHER);
}

#[test]
fn echoes_are_farther_than_causes() {
    let lost = on_rank(BurnError::from(CoreError::RankLost { rank: 0, reason: "gone".into() }));
    let late = on_rank(CoreError::Timeout { what: "a barrier".into(), seconds: 1.0, late: vec![] });
    let stopped = on_rank(EngineError::Stopped("earlier".into()));
    let cause = on_rank(Error::other("no file"));
    let mut order = [&stopped, &lost, &late, &cause].map(Error::closeness);
    order.sort();
    assert_eq!(order, [Closeness::Cause, Closeness::Missed, Closeness::Heard, Closeness::Stopped]);
}

#[test]
fn a_chain_says_everything_once() {
    let source = std::io::Error::other("disk on fire");
    let error = on_rank(Error::Thread { name: "rank-1".into(), source });
    assert_eq!(
        error.chain(),
        "rank 1 failed: thread `rank-1` could not be started; run fewer ranks (run.ranks) or allow more threads: disk \
         on fire"
    );
    assert_eq!(on_rank(full()).chain(), format!("rank 1 failed: {}", full()));
}
