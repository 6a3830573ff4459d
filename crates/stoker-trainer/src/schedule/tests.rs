use super::*;
use stoker_config::{Settings, Sources};

fn settings(keys: &str) -> LearningRate {
    let overrides = keys.split_whitespace().map(|key| format!("learning_rate.{key}")).collect();
    Settings::load(&Sources { overrides, ..Sources::default() }).unwrap().0.learning_rate
}

/// The first `take` rates of a run of `steps`.
fn rates(keys: &str, steps: usize, take: usize) -> Vec<f64> {
    let mut schedule = Schedule::new(&settings(keys), steps).unwrap();
    let mut next = || {
        let rate = schedule.rate();
        schedule.advance();
        rate
    };
    (0..take).map(|_| next()).collect()
}

#[track_caller]
fn near(found: &[f64], wanted: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-14 * b.abs().max(1e-3);
    assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(close), "{found:?} is not {wanted:?}");
}

#[test]
fn constant_stays() {
    assert_eq!(rates("base=3", 0, 3), [3.0; 3]);
}

#[test]
fn linear_begins_at_the_base_and_ends_at_the_end() {
    assert_eq!(rates("schedule=linear base=0.5", 5, 7), [0.5, 0.375, 0.25, 0.125, 0.0, 0.0, 0.0]);
    assert_eq!(rates("schedule=linear base=4 end=2", 3, 3), [4.0, 3.0, 2.0]);
    assert_eq!(rates("schedule=linear base=0.5", 1, 2), [0.5, 0.5]);
    assert_eq!(rates("schedule=linear base=0", 4, 2), [0.0, 0.0]);
}

#[test]
fn cosine_begins_at_the_base_and_ends_at_the_end() {
    // PyTorch's CosineAnnealingLR with T_max = 4: end + (base - end) / 2 * (1 + cos(pi * s / 4)).
    let root = 0.5f64.sqrt();
    let wanted = [0.5, 0.1 + 0.2 * (1.0 + root), 0.3, 0.1 + 0.2 * (1.0 - root), 0.1, 0.1, 0.1];
    near(&rates("schedule=cosine base=0.5 end=0.1", 5, 7), &wanted);
    // Beyond what Burn takes.
    near(&rates("schedule=cosine base=8 end=4", 3, 3), &[8.0, 6.0, 4.0]);
}

#[test]
fn exponential_is_multiplied_at_every_step() {
    near(&rates("schedule=exponential base=0.8 gamma=0.5", 0, 4), &[0.8, 0.4, 0.2, 0.1]);
    near(&rates("schedule=exponential base=10 gamma=0.1", 3, 5), &[10.0, 1.0, 0.1, 0.1, 0.1]);
}

#[test]
fn step_is_multiplied_every_so_many_steps() {
    let wanted = [2.0, 2.0, 2.0, 0.5, 0.5, 0.5, 0.125];
    near(&rates("schedule=step base=2 gamma=0.25 step_size=3", 0, 7), &wanted);
}

#[test]
fn one_cycle_is_that_of_pytorch() {
    // torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10, pct_start=0.4, div_factor=4, final_div_factor=25):
    // from 1/4 up to 1 at step 0.4 * 10 - 1 = 3, down to 1/100 at step 9; cos(pi / 3) is 1/2.
    let up = [0.25, 0.25 + 0.75 * 0.25, 0.25 + 0.75 * 0.75, 1.0];
    let sixth = 0.75f64.sqrt();
    let down = [(1.0 + sixth) / 2.0, 0.75, 0.5, 0.25, (1.0 - sixth) / 2.0, 0.0].map(|part| 0.01 + 0.99 * part);
    let wanted: Vec<f64> = up.into_iter().chain(down).chain([0.01]).collect();
    near(&rates("schedule=one-cycle base=1 pct_start=0.4 div_factor=4 final_div_factor=25", 10, 11), &wanted);
}

#[test]
fn one_cycle_of_any_length_stays_in_its_bounds() {
    // 0.3 * 2 - 1: the peak lies before the first step, from where PyTorch counts the fall.
    let fall = |part: f64| 0.001 + (1.0 - 0.001) / 2.0 * (1.0 + (std::f64::consts::PI * part).cos());
    let keys = "schedule=one-cycle base=1 div_factor=10 final_div_factor=100";
    near(&rates(keys, 2, 2), &[fall(0.4 / 1.4), 0.001]);
    near(&rates(keys, 1, 2), &[0.001, 0.001]);
    // PyTorch divides by zero in the first: the rise has no length.
    near(&rates(&format!("{keys} pct_start=0.5"), 2, 2), &[1.0, 0.001]);
    near(&rates(&format!("{keys} pct_start=1"), 3, 3), &[0.1, 0.55, 1.0]);
}

#[test]
fn warm_up_rises_to_the_first_rate_of_the_schedule() {
    // As in the reference trajectories: base * min(1, (s + 1) / warmup_steps).
    assert_eq!(rates("base=2 warmup_steps=4", 0, 6), [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]);
    // Two steps of warm-up and four of decay.
    assert_eq!(rates("schedule=linear base=3 warmup_steps=2", 6, 7), [1.5, 3.0, 3.0, 2.0, 1.0, 0.0, 0.0]);
    near(&rates("schedule=cosine base=4 end=2 warmup_steps=1", 4, 4), &[4.0, 4.0, 3.0, 2.0]);
    near(
        &rates("schedule=step base=1 gamma=0.5 step_size=2 warmup_steps=2", 0, 7),
        &[0.5, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25],
    );
    near(&rates("schedule=exponential base=1 gamma=0.5 warmup_steps=2", 0, 5), &[0.5, 1.0, 1.0, 0.5, 0.25]);
    let cycle = "schedule=one-cycle base=1 pct_start=1 div_factor=10 final_div_factor=100 warmup_steps=2";
    near(&rates(cycle, 5, 5), &[0.05, 0.1, 0.1, 0.55, 1.0]);
}

#[test]
fn logarithmic_warm_up_is_that_of_deepspeed() {
    // WarmupLR: max * ln(s + 1) / ln(warmup_num_steps).
    let wanted = [0.0, 0.5, 3f64.ln() / 4f64.ln(), 1.0, 1.0];
    near(&rates("base=1 warmup_steps=4 warmup=logarithmic", 0, 5), &wanted);
    // One step is taken for two.
    near(&rates("base=1 warmup_steps=1 warmup=logarithmic", 0, 3), &[0.0, 1.0, 1.0]);
}

#[test]
fn a_run_may_end_in_its_warm_up() {
    assert_eq!(rates("schedule=linear base=1 warmup_steps=4", 2, 4), [0.25, 0.5, 0.5, 0.5]);
}

#[test]
fn a_step_that_is_made_again_has_the_same_rate() {
    let mut schedule = Schedule::new(&settings("schedule=linear base=0.5 warmup_steps=2"), 4).unwrap();
    for wanted in [0.25, 0.5, 0.5, 0.0] {
        assert_eq!([schedule.rate(), schedule.rate()], [wanted; 2]);
        schedule.advance();
    }
}

#[test]
fn what_burn_refuses_is_an_error() {
    for (keys, change) in [
        ("schedule=linear base=0.5", (|s| s.end = -0.5) as fn(&mut LearningRate)),
        ("schedule=cosine base=0.5", |s| s.end = 0.75),
        ("schedule=exponential gamma=0.5", |s| s.gamma = 0.0),
        ("schedule=step gamma=0.5 step_size=1", |s| s.step_size = 0),
    ] {
        let mut settings = settings(keys);
        change(&mut settings);
        let error = Schedule::new(&settings, 4).unwrap_err().to_string();
        assert!(error.starts_with(&format!("learning_rate is {} with base ", settings.schedule)), "{error}");
        assert!(error.contains("; allowed: 0 <= end <= base, 0 < gamma <= 1, step_size from 1 on ("), "{error}");
    }
}
