//! The ten figures of the built-in data set, as signed distances.
//!
//! A distance is in pixels and negative inside the figure, so that one rule gives every figure equally soft edges.

/// The figures, by label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    HorizontalStripes,
    VerticalStripes,
    DiagonalStripes,
    Checkerboard,
    Dots,
    Disc,
    Ring,
    Square,
    Cross,
    Triangle,
}

/// Every figure; the place is the label.
pub(crate) const FIGURES: [(Figure, &str); 10] = [
    (Figure::HorizontalStripes, "horizontal stripes"),
    (Figure::VerticalStripes, "vertical stripes"),
    (Figure::DiagonalStripes, "diagonal stripes"),
    (Figure::Checkerboard, "checkerboard"),
    (Figure::Dots, "dots"),
    (Figure::Disc, "disc"),
    (Figure::Ring, "ring"),
    (Figure::Square, "square"),
    (Figure::Cross, "cross"),
    (Figure::Triangle, "triangle"),
];

impl Figure {
    /// Whether the figure fills the picture rather than standing somewhere in it.
    pub(crate) fn is_texture(self) -> bool {
        use Figure::*;
        matches!(self, HorizontalStripes | VerticalStripes | DiagonalStripes | Checkerboard | Dots)
    }

    /// Distance of the point (`x`, `y`) from the edge. `size` is the period of a texture and the radius of a shape.
    pub(crate) fn distance(self, x: f32, y: f32, size: f32) -> f32 {
        match self {
            Figure::HorizontalStripes => stripe(y, size),
            Figure::VerticalStripes => stripe(x, size),
            Figure::DiagonalStripes => stripe((x + y) * std::f32::consts::FRAC_1_SQRT_2, size),
            Figure::Checkerboard => {
                let (a, b) = (stripe(x, size), stripe(y, size));
                // In one of the two but not in both.
                a.min(b).max(-a.max(b))
            }
            Figure::Dots => from_centre(x, size).hypot(from_centre(y, size)) - 0.28 * size,
            Figure::Disc => x.hypot(y) - size,
            Figure::Ring => (x.hypot(y) - 0.75 * size).abs() - 0.25 * size,
            Figure::Square => x.abs().max(y.abs()) - 0.85 * size,
            Figure::Cross => {
                let (x, y, arm) = (x.abs(), y.abs(), 0.22 * size);
                (x - size).max(y - arm).min((y - size).max(x - arm))
            }
            // Three edges, each half the radius away from the centre; the tip is at the top.
            Figure::Triangle => (0.866_025_4 * x.abs() - 0.5 * y).max(y) - 0.5 * size,
        }
    }
}

/// Distance from the edge of the stripes that take every other half `period` along `t`.
fn stripe(t: f32, period: f32) -> f32 {
    from_centre(t, period).abs() - 0.25 * period
}

/// `t` relative to the middle of its cell of `period`.
fn from_centre(t: f32, period: f32) -> f32 {
    t.rem_euclid(period) - 0.5 * period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_inside_where_it_should_be() {
        for (figure, name) in FIGURES {
            let middle = if figure.is_texture() { 4.0 } else { 0.0 };
            let outside = matches!(figure, Figure::Ring | Figure::Checkerboard);
            let distance = figure.distance(middle, middle, 8.0);
            assert_eq!(distance < 0.0, !outside, "{name}: {distance}");
        }
    }

    #[test]
    fn shapes_end_and_textures_repeat() {
        for (figure, name) in FIGURES {
            if figure.is_texture() && figure != Figure::DiagonalStripes {
                let (here, there) = (figure.distance(1.0, 2.5, 8.0), figure.distance(9.0, 10.5, 8.0));
                assert!((here - there).abs() < 1e-4, "{name}");
            } else if !figure.is_texture() {
                assert!(figure.distance(12.0, 12.0, 8.0) > 0.0, "{name}");
            }
        }
    }
}
