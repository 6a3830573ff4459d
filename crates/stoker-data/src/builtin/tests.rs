use super::*;
use crate::image::to_f32;

fn items(data: &Builtin) -> Vec<ImageItem> {
    (0..data.len()).map(|index| data.get(index).unwrap()).collect()
}

#[test]
fn a_record_depends_on_seed_split_and_index_alone() {
    let forwards = items(&Builtin::new(5, Split::Train, 40));
    let other = Builtin::new(5, Split::Train, 60);
    let backwards: Vec<ImageItem> = (0..40).rev().map(|index| other.get(index).unwrap()).collect();
    assert!(forwards.iter().eq(backwards.iter().rev()));
    assert!(items(&other)[..40] == forwards);
}

#[test]
fn seed_and_split_change_every_record() {
    let one = items(&Builtin::new(5, Split::Train, 20));
    for other in [Builtin::new(6, Split::Train, 20), Builtin::new(5, Split::Valid, 20)] {
        assert!(one.iter().zip(items(&other)).all(|(one, other)| one.pixels != other.pixels));
    }
    for (index, item) in one.iter().enumerate() {
        assert!(one[..index].iter().all(|earlier| earlier.pixels != item.pixels), "record {index} is drawn twice");
    }
}

#[test]
fn labels_are_balanced_and_not_in_order() {
    let items = items(&Builtin::new(1, Split::Valid, 100));
    for ten in items.chunks_exact(10) {
        let mut labels: Vec<u8> = ten.iter().map(|item| item.label).collect();
        labels.sort_unstable();
        assert!(labels.into_iter().eq(0..10));
    }
    let place = |label| items.iter().position(|item| item.label == label).unwrap();
    assert!((1..10).any(|label| place(label) < place(label - 1)));
    assert_ne!(items[..10].iter().map(|item| item.label).collect::<Vec<_>>(), (0..10).collect::<Vec<u8>>());
}

#[test]
fn every_class_has_a_name_of_its_own() {
    let mut names = Builtin::class_names();
    assert_eq!(names.len(), CLASSES);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CLASSES);
}

#[test]
#[should_panic(expected = "out of bounds")]
fn an_index_past_the_end_panics_as_burn_specifies() {
    let _ = Builtin::new(1, Split::Train, 3).get(3);
}

#[test]
fn debug_output_does_not_list_the_records() {
    let text = format!("{:?}", Builtin::new(9, Split::Train, 5_000));
    assert_eq!(text, "Builtin { seed: 9, split: Train, records: 5000 }");
}

/// Softmax regression on the pixels, by stochastic gradient descent.
struct Linear {
    weights: Vec<f32>,
    biases: [f32; CLASSES],
}

impl Linear {
    fn probabilities(&self, pixels: &[f32]) -> [f32; CLASSES] {
        let mut logits = self.biases;
        for (logit, row) in logits.iter_mut().zip(self.weights.chunks_exact(PIXELS)) {
            *logit += row.iter().zip(pixels).map(|(weight, pixel)| weight * pixel).sum::<f32>();
        }
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let powers = logits.map(|logit| (logit - largest).exp());
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }

    fn learn(&mut self, pixels: &[f32], label: usize, rate: f32) {
        let mut errors = self.probabilities(pixels);
        errors[label] -= 1.0;
        for ((error, bias), row) in errors.iter().zip(&mut self.biases).zip(self.weights.chunks_exact_mut(PIXELS)) {
            *bias -= rate * error;
            row.iter_mut().zip(pixels).for_each(|(weight, pixel)| *weight -= rate * error * pixel);
        }
    }

    fn accuracy(&self, data: &[(Vec<f32>, usize)]) -> f32 {
        let right = data.iter().filter(|(pixels, label)| {
            let probabilities = self.probabilities(pixels);
            probabilities.iter().all(|other| *other <= probabilities[*label])
        });
        right.count() as f32 / data.len() as f32
    }
}

#[test]
fn a_linear_classifier_cannot_tell_the_classes_apart() {
    let scaled = |split, len| -> Vec<(Vec<f32>, usize)> {
        let scale = |item: ImageItem| (item.pixels.iter().copied().map(to_f32).collect(), usize::from(item.label));
        items(&Builtin::new(0, split, len)).into_iter().map(scale).collect()
    };
    let train = scaled(Split::Train, DEFAULT_TRAIN_RECORDS);
    let valid = scaled(Split::Valid, DEFAULT_VALID_RECORDS);
    let mut linear = Linear { weights: vec![0.0; CLASSES * PIXELS], biases: [0.0; CLASSES] };
    let mut best = 0f32;
    for epoch in 0..5u8 {
        // Single records at a falling rate: as good as such a classifier gets here.
        let rate = 1.5e-4 / (1.0 + f32::from(epoch));
        train.iter().for_each(|(pixels, label)| linear.learn(pixels, *label, rate));
        best = best.max(linear.accuracy(&valid));
        println!("epoch {epoch}: best accuracy {best}");
    }
    assert!(best < 0.4, "a linear classifier reaches {best}: the built-in set has become trivial");
    // It did learn something, so the bound above says something about the data and not about this test.
    assert!(best > 0.15 && linear.accuracy(&train) > 0.25, "the classifier of this test does not learn: {best}");
}
