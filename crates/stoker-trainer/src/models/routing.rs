//! Who goes to which expert: plain numbers, decided on the host.
//!
//! Decided there, ties and all, it is the same on every backend, and a hand can check it. What depends on the routing is
//! never how much is computed, only what: an expert has `capacity` rows, and they are computed in every step.

/// The rows of one expert in a batch of `tokens` that choose `top_k` experts each: their fair share times `factor`,
/// rounded up.
///
/// At least one; never more than `tokens`, since a token takes no expert twice.
pub(crate) fn capacity(tokens: usize, experts: usize, top_k: usize, factor: f64) -> usize {
    let share = (top_k * tokens) as f64 / experts as f64 * factor;
    // A product that is whole but for its rounding stays what it is.
    let rows = (share - 1e-9).ceil() as usize;
    rows.clamp(1, tokens.max(1))
}

/// Which tokens sit where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Routing {
    experts: usize,
    capacity: usize,
    /// For each choice (first, second, ..), for each token: the expert.
    pub(crate) chosen: Vec<Vec<usize>>,
    /// For each choice, for each token: its row among all experts' (`expert * capacity + row`); `None` if the expert was
    /// full.
    pub(crate) seats: Vec<Vec<Option<usize>>>,
}

impl Routing {
    /// Seats tokens by their `probabilities`, `[tokens, experts]`.
    ///
    /// Each token chooses the `top_k` most probable experts, of equals the first. All first choices are seated before
    /// any second one, in the order of the tokens (as in GShard): whoever comes when an expert has `capacity` is dropped
    /// there.
    pub(crate) fn new(probabilities: &[f32], experts: usize, top_k: usize, capacity: usize) -> Self {
        let by_token: Vec<Vec<usize>> =
            probabilities.chunks_exact(experts.max(1)).map(|row| most_probable(row, top_k)).collect();
        let chosen: Vec<Vec<usize>> = (0..top_k)
            .map(|choice| by_token.iter().filter_map(|experts| experts.get(choice).copied()).collect())
            .collect();
        let mut taken = vec![0; experts];
        let mut seat = |expert: usize| {
            let taken: &mut usize = taken.get_mut(expert)?;
            let row = *taken;
            *taken += 1;
            (row < capacity).then_some(expert * capacity + row)
        };
        let seats = chosen.iter().map(|choice| choice.iter().map(|&expert| seat(expert)).collect()).collect();
        Self { experts, capacity, chosen, seats }
    }

    /// The tokens of every expert's rows, expert after expert; `None` where a row is empty.
    pub(crate) fn tokens(&self) -> Vec<Option<usize>> {
        let mut tokens = vec![None; self.experts * self.capacity];
        for choice in &self.seats {
            for (token, seat) in choice.iter().enumerate() {
                if let Some(place) = seat.and_then(|seat| tokens.get_mut(seat)) {
                    *place = Some(token);
                }
            }
        }
        tokens
    }

    /// How many tokens each expert is the first choice of, seated or not.
    pub(crate) fn loads(&self) -> Vec<usize> {
        let mut loads = vec![0; self.experts];
        for &expert in self.chosen.iter().take(1).flatten() {
            if let Some(load) = loads.get_mut(expert) {
                *load += 1;
            }
        }
        loads
    }
}

fn most_probable(row: &[f32], top_k: usize) -> Vec<usize> {
    let mut experts: Vec<(usize, f32)> = row.iter().copied().enumerate().collect();
    // A stable sort: of equals the first stays first.
    experts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    experts.into_iter().take(top_k).map(|(expert, _)| expert).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_the_share_rounded_up() {
        assert_eq!(capacity(10, 4, 1, 1.0), 3);
        assert_eq!(capacity(10, 4, 1, 1.25), 4);
        assert_eq!(capacity(10, 4, 2, 1.0), 5);
        assert_eq!(capacity(10, 4, 2, 1.2), 6);
        // 3 * 7 / 7 * 1.1 / 1.1 and the like come out as whole numbers and a rounding error.
        assert_eq!(capacity(30, 3, 1, 1.1), 11);
        assert_eq!(capacity(10, 4, 1, 0.0), 1);
        assert_eq!(capacity(10, 4, 1, f64::NAN), 1);
        assert_eq!(capacity(10, 4, 2, 100.0), 10);
        assert_eq!(capacity(1, 8, 1, 1.0), 1);
    }

    /// Five tokens, three experts.
    const PROBABILITIES: [f32; 15] = [
        0.7, 0.2, 0.1, //
        0.6, 0.1, 0.3, //
        0.1, 0.8, 0.1, //
        0.5, 0.3, 0.2, //
        0.2, 0.2, 0.6,
    ];

    #[test]
    fn first_choices_are_seated_in_order_and_the_surplus_dropped() {
        let routing = Routing::new(&PROBABILITIES, 3, 1, 2);
        assert_eq!(routing.chosen, [[0, 0, 1, 0, 2]]);
        // The fourth token finds expert 0 full.
        assert_eq!(routing.seats, [[Some(0), Some(1), Some(2), None, Some(4)]]);
        assert_eq!(routing.tokens(), [Some(0), Some(1), Some(2), None, Some(4), None]);
        assert_eq!(routing.loads(), [3, 1, 1]);
    }

    #[test]
    fn second_choices_come_after_all_first_ones() {
        let routing = Routing::new(&PROBABILITIES, 3, 2, 3);
        // Token 2 has experts 0 and 2 equally as its second, token 4 experts 0 and 1: the first of them is taken.
        assert_eq!(routing.chosen, [[0, 0, 1, 0, 2], [1, 2, 0, 1, 0]]);
        assert_eq!(
            routing.seats,
            [
                [Some(0), Some(1), Some(3), Some(2), Some(6)],
                // Expert 0 has its three first choices; experts 1 and 2 have one each before the second ones come.
                [Some(4), Some(7), None, Some(5), None],
            ]
        );
        let tokens = [Some(0), Some(1), Some(3), Some(2), Some(0), Some(3), Some(4), Some(1), None];
        assert_eq!(routing.tokens(), tokens);
        assert_eq!(routing.loads(), [3, 1, 1]);
    }

    #[test]
    fn a_router_that_is_not_a_number_still_seats_everybody_somewhere() {
        let routing = Routing::new(&[f32::NAN, f32::NAN, 0.5, f32::NAN], 2, 1, 1);
        assert_eq!(routing.loads().iter().sum::<usize>(), 2);
    }
}
