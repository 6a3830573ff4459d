//! What is trained: units, and the order in which steps call them.

use crate::device::SimulatedDevice;
use stoker_core::{DType, ParameterSpec};
use stoker_engine::{Engine, Error, UnitSpec};

#[derive(Debug, Clone)]
pub(crate) struct ModelUnit {
    /// Of its parameters.
    pub(crate) sizes: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) trainable: bool,
    /// Whether the graph keeps a view of it from forward to backward.
    pub(crate) kept: bool,
    /// How many of its first parameters get a gradient.
    pub(crate) used: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) units: Vec<ModelUnit>,
    /// The calls of a step, for each of some steps in turn.
    pub(crate) calls: Vec<Vec<usize>>,
}

impl Model {
    /// Odd, empty and single parameters; the last unit is called twice, the second in some steps only, the last parameter
    /// of the first unit gets no gradient, and the fourth unit is frozen.
    pub(crate) fn of_many_kinds() -> Self {
        let sizes: [&[usize]; 6] = [&[15, 3, 2], &[7], &[0, 1], &[2, 5], &[16, 6], &[9]];
        let unit = |(number, sizes): (usize, &&[usize])| ModelUnit {
            sizes: sizes.to_vec(),
            dtype: DType::F32,
            trainable: number != 3,
            kept: false,
            used: if number == 0 { 2 } else { sizes.len() },
        };
        let calls = vec![vec![0, 1, 2, 3, 4, 5, 5], vec![0, 2, 3, 4, 5, 5]];
        Self { units: sizes.iter().enumerate().map(unit).collect(), calls }
    }

    pub(crate) fn calls(&self, step: usize) -> &[usize] {
        &self.calls[step % self.calls.len()]
    }

    pub(crate) fn specs(&self) -> Vec<UnitSpec> {
        let parameter = |unit: usize, (parameter, &size): (usize, &usize)| ParameterSpec {
            path: format!("unit{unit}.p{parameter}"),
            shape: vec![size],
        };
        let unit = |(number, unit): (usize, &ModelUnit)| {
            let parameters = unit.sizes.iter().enumerate().map(|size| parameter(number, size)).collect();
            UnitSpec {
                dtype: unit.dtype,
                trainable: unit.trainable,
                ..UnitSpec::new(format!("unit{number}"), parameters)
            }
        };
        self.units.iter().enumerate().map(unit).collect()
    }

    fn parameters(&self) -> impl Iterator<Item = (usize, usize)> {
        let units = self.units.iter().enumerate();
        units.flat_map(|(unit, model)| (0..model.sizes.len()).map(move |parameter| (unit, parameter)))
    }

    /// Gives the engine the initial values.
    pub(crate) fn load(&self, engine: &mut Engine<SimulatedDevice>) -> Result<(), Error> {
        for (unit, parameter) in self.parameters() {
            let size = self.units[unit].sizes[parameter];
            let values: Vec<f32> =
                (0..size).map(|i| ((i * 37 + unit * 11 + parameter) % 17) as f32 / 8.5 - 1.0).collect();
            // In two parts.
            let half = size / 2;
            engine.load(unit, parameter, half, &values[half..])?;
            engine.load(unit, parameter, 0, &values[..half])?;
        }
        Ok(())
    }

    /// All parameters as they are now.
    pub(crate) fn read(&self, engine: &mut Engine<SimulatedDevice>) -> Vec<Vec<f32>> {
        let read = |(unit, parameter)| engine.read_parameter(unit, parameter).unwrap().as_slice::<f32>().to_vec();
        self.parameters().map(read).collect()
    }
}
