//! A data set that needs no download: ten kinds of figures, drawn from a seed.
//!
//! It is there to train a real model on any machine and see it learn. The figures differ in place, size, angle and
//! colour; light on dark is as likely as dark on light, so that no pixel by itself tells anything about the class and
//! a linear classifier stays far behind a convolutional one.

use std::sync::OnceLock;

use burn_dataset::{Dataset, DatasetError};

use crate::image::{CHANNELS, CLASSES, HEIGHT, ImageItem, PIXELS, Split, WIDTH};
use crate::keyed::{Keyed, Purpose};
use crate::shapes::{FIGURES, Figure};

/// Records to train on when no limit is set.
pub const DEFAULT_TRAIN_RECORDS: usize = 5_000;
/// Records to validate with when no limit is set.
pub const DEFAULT_VALID_RECORDS: usize = 1_000;

/// The least distance, in a colour cube of side 1, between the two colours of a picture.
const LEAST_CONTRAST: f32 = 0.6;
/// How far noise can move a colour either way, in bytes.
const NOISE: f32 = 32.0;
/// How far the light falls off from the middle of the picture to its edge, at most.
const SHADE: f32 = 0.15;

/// Ten classes of figures. Record `i` depends on the seed, the split and `i` alone.
///
/// A record is drawn when it is first asked for, and kept: a rank never draws those of other ranks.
pub struct Builtin {
    seed: u64,
    split: Split,
    drawn: Vec<OnceLock<Box<ImageItem>>>,
}

impl Builtin {
    /// `len` records of `split`. A longer set starts with the records of a shorter one.
    pub fn new(seed: u64, split: Split, len: usize) -> Self {
        Self { seed, split, drawn: (0..len).map(|_| OnceLock::new()).collect() }
    }

    /// The names of the ten classes, by label.
    pub fn class_names() -> Vec<String> {
        FIGURES.iter().map(|(_, name)| String::from(*name)).collect()
    }

    fn part(&self) -> u64 {
        match self.split {
            Split::Train => 0,
            Split::Valid => 1,
        }
    }

    /// Every ten records starting at a multiple of ten have each label once, in an order of their own.
    fn label(&self, index: usize) -> usize {
        let mut labels: [usize; CLASSES] = std::array::from_fn(|label| label);
        Keyed::new(self.seed, Purpose::Labels, self.part(), (index / CLASSES) as u64).shuffle(&mut labels);
        // A remainder of the array's own length is in bounds.
        labels[index % CLASSES]
    }

    fn draw(&self, index: usize) -> ImageItem {
        let label = self.label(index);
        // Labels are below `CLASSES`, the length of `FIGURES`.
        let (figure, _) = FIGURES[label];
        let mut random = Keyed::new(self.seed, Purpose::Picture, self.part(), index as u64);
        ImageItem { pixels: picture(figure, &mut random), label: label as u8 }
    }
}

impl std::fmt::Debug for Builtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builtin")
            .field("seed", &self.seed)
            .field("split", &self.split)
            .field("records", &self.drawn.len())
            .finish()
    }
}

impl Dataset<ImageItem> for Builtin {
    fn get(&self, index: usize) -> Result<ImageItem, DatasetError> {
        // `Dataset::get` is specified to panic out of bounds, as a slice does.
        Ok(self.drawn[index].get_or_init(|| Box::new(self.draw(index))).as_ref().clone())
    }

    fn len(&self) -> usize {
        self.drawn.len()
    }
}

/// Where a figure stands and how large.
struct Pose {
    x: f32,
    y: f32,
    size: f32,
    sin: f32,
    cos: f32,
}

impl Pose {
    fn random(figure: Figure, random: &mut Keyed) -> Self {
        let size = if figure.is_texture() { random.between(5.0, 10.0) } else { random.between(8.0, 12.5) };
        // A texture has no place, so this only shifts it; a shape stays wholly in the picture.
        let reach = if figure.is_texture() { 0.0 } else { size };
        let x = random.between(reach, WIDTH as f32 - reach);
        let y = random.between(reach, HEIGHT as f32 - reach);
        // No more, or one kind of stripes would turn into another.
        let (sin, cos) = random.between(-0.25, 0.25).sin_cos();
        Self { x, y, size, sin, cos }
    }

    /// How much of the pixel at (`column`, `row`) the figure covers, from 0 to 1.
    fn coverage(&self, figure: Figure, column: usize, row: usize) -> f32 {
        let (x, y) = (column as f32 + 0.5 - self.x, row as f32 + 0.5 - self.y);
        let (along, across) = (self.cos * x + self.sin * y, self.cos * y - self.sin * x);
        (0.5 - figure.distance(along, across, self.size)).clamp(0.0, 1.0)
    }
}

/// Two colours far enough apart to tell the figure from what is behind it.
fn colours(random: &mut Keyed) -> ([f32; CHANNELS], [f32; CHANNELS]) {
    let mut draw = || [random.unit(), random.unit(), random.unit()];
    let behind = draw();
    loop {
        let figure = draw();
        let squares = figure.iter().zip(&behind).map(|(one, other)| (one - other) * (one - other));
        // Whatever the colour behind, some corners of the cube are farther away than this: a draw soon succeeds.
        if squares.sum::<f32>() >= LEAST_CONTRAST * LEAST_CONTRAST {
            return (figure, behind);
        }
    }
}

fn picture(figure: Figure, random: &mut Keyed) -> [u8; PIXELS] {
    let pose = Pose::random(figure, random);
    let (front, behind) = colours(random);
    let (slope_x, slope_y) = (random.between(-SHADE, SHADE), random.between(-SHADE, SHADE));
    let mut noise = [0u8; 2 * PIXELS];
    random.fill(&mut noise);

    let mut cover = [0f32; WIDTH * HEIGHT];
    let mut light = [0f32; WIDTH * HEIGHT];
    for (place, (cover, light)) in cover.iter_mut().zip(&mut light).enumerate() {
        let (column, row) = (place % WIDTH, place / WIDTH);
        *cover = pose.coverage(figure, column, row);
        *light = 1.0 + slope_x * (column as f32 / 15.5 - 1.0) + slope_y * (row as f32 / 15.5 - 1.0);
    }

    let mut pixels = [0u8; PIXELS];
    let planes = pixels.chunks_exact_mut(WIDTH * HEIGHT).zip(noise.chunks_exact(2 * WIDTH * HEIGHT));
    for ((plane, noise), (front, behind)) in planes.zip(front.iter().zip(&behind)) {
        let places = plane.iter_mut().zip(noise.as_chunks::<2>().0).zip(cover.iter().zip(&light));
        for ((pixel, [one, other]), (cover, light)) in places {
            let colour = (behind + (front - behind) * cover) * light * 255.0;
            // The sum of two uniform bytes leans towards its middle, as noise does.
            let jitter = (f32::from(*one) + f32::from(*other) - 255.0) / 255.0 * NOISE;
            // The conversion saturates at 0 and 255.
            *pixel = (colour + jitter) as u8;
        }
    }
    pixels
}

#[cfg(test)]
mod tests;
