//! The record that every data set yields, and the one scaling that turns it into numbers for a model.

/// Colour planes of a picture: red, green, blue.
pub const CHANNELS: usize = 3;
/// Rows of a picture.
pub const HEIGHT: usize = 32;
/// Columns of a picture.
pub const WIDTH: usize = 32;
/// Bytes of one picture.
pub const PIXELS: usize = CHANNELS * HEIGHT * WIDTH;
/// Number of classes; a label lies in `0..CLASSES`.
pub const CLASSES: usize = 10;

/// Which of a data set's two parts is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// The records to train on.
    Train,
    /// The records held back to measure how well the model does.
    Valid,
}

/// One labelled picture.
///
/// The pixels lie inline, so that a batch of items is one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageItem {
    /// The picture, plane by plane (channel, row, column).
    pub pixels: [u8; PIXELS],
    /// The class, in `0..CLASSES`.
    pub label: u8,
}

impl ImageItem {
    /// The picture scaled to `[-1, 1]`, plane by plane, as a model takes it.
    pub fn to_f32(&self) -> Vec<f32> {
        self.pixels.iter().copied().map(to_f32).collect()
    }

    /// Appends the scaled picture to `out`: a batch is filled without a temporary per record.
    pub fn extend_f32(&self, out: &mut Vec<f32>) {
        out.extend(self.pixels.iter().copied().map(to_f32));
    }
}

/// Scales one byte to `[-1, 1]`: `(x / 255 - 0.5) / 0.5`.
pub fn to_f32(pixel: u8) -> f32 {
    (f32::from(pixel) / 255.0 - 0.5) / 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_spans_minus_one_to_one() {
        assert_eq!(to_f32(0), -1.0);
        assert_eq!(to_f32(255), 1.0);
        assert!(to_f32(127) < 0.0 && to_f32(128) > 0.0);
    }

    #[test]
    fn an_item_scales_all_of_its_pixels_in_order() {
        let mut item = ImageItem { pixels: [0; PIXELS], label: 3 };
        item.pixels[PIXELS - 1] = 255;
        let scaled = item.to_f32();
        assert_eq!(scaled.len(), PIXELS);
        assert_eq!((scaled[0], scaled[PIXELS - 1]), (-1.0, 1.0));
        let mut batch = vec![0.5];
        item.extend_f32(&mut batch);
        assert_eq!(batch.len(), PIXELS + 1);
        assert_eq!(&batch[1..], &scaled[..]);
    }
}
