//! The part of a model that is gathered and released together.

use crate::boundary::{Link, within};
use crate::call;
use crate::flow::Flow;
use crate::statistics::settle;
use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::tensor::Device;

/// A module whose parameters are gathered for a call and released after it (FSDP's wrap unit).
///
/// Wrap what should be in device memory at once: a layer, a block. A model made of units is an ordinary Burn module: as
/// long as no [`Rank`](crate::Rank) has built it, [`call`](Self::call) simply runs the module inside. A unit adds no
/// segment to the paths of its parameters, so files and seeds are those of the model without units.
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Tensor};
/// use stoker_burn::Unit;
///
/// #[derive(Module, Debug)]
/// struct Net {
///     first: Unit<Linear>,
///     second: Unit<Linear>,
/// }
///
/// impl Net {
///     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
///         let x = self.first.call(x, |linear, x| linear.forward(x));
///         self.second.call(x, |linear, x| linear.forward(x))
///     }
/// }
///
/// let device = Device::flex();
/// let net = Net {
///     first: Unit::new(LinearConfig::new(4, 8).init(&device)),
///     second: Unit::new(LinearConfig::new(8, 2).init(&device)),
/// };
/// assert_eq!(net.forward(Tensor::zeros([3, 4], &device)).dims(), [3, 2]);
/// ```
#[derive(Debug)]
pub struct Unit<M> {
    module: M,
    link: Link,
}

impl<M: Module> Unit<M> {
    /// Makes a unit of `module`.
    pub fn new(module: M) -> Self {
        Self { module, link: Link::default() }
    }

    /// Runs `forward` on the module with its parameters at hand, and on `input`.
    ///
    /// `input` carries every tensor that depends on other units: a float tensor that `forward` captures instead works,
    /// but the unit's gradients may then arrive later than they could. Inside, the parameters are ordinary tensors; do
    /// not keep any of them beyond the call.
    ///
    /// # Panics
    /// Under an engine, errors unwind with a typed payload that [`Rank::step`](crate::Rank::step) and
    /// [`Rank::evaluate`](crate::Rank::evaluate) turn into a `Result`: call units inside these.
    pub fn call<I: Flow, O: Flow>(&self, input: I, forward: impl FnOnce(&M, I) -> O) -> O {
        call::call(&self.link, &self.module, input, forward)
    }

    /// Takes this unit's part in what ranks do together, in the place of a [`call`](Self::call): for a rank that has no use
    /// for the unit this time, such as an expert that none of its tokens were sent to, while another rank calls it.
    ///
    /// Every rank must call or skip the same units in the same order. Without an engine it does nothing.
    ///
    /// # Panics
    /// As [`call`](Self::call); a unit that holds other units is refused.
    pub fn skip(&self) {
        call::skip(&self.link, &self.module);
    }

    fn is_sharded(&self) -> bool {
        self.link.get().is_some()
    }
}

impl<M: Clone> Clone for Unit<M> {
    /// Clones of a unit that a rank has built are the same unit; clones made before are units of their own.
    fn clone(&self) -> Self {
        let link = if self.link.get().is_some() { self.link.clone() } else { Link::default() };
        Self { module: self.module.clone(), link }
    }
}

// Written by hand: the derive would add a path segment. Under an engine the parameters are not here, so what would move
// or convert them leaves the unit as it is; `call` looks at what the rank is doing instead.
impl<M: Module> Module for Unit<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        if self.is_sharded() { self } else { Self { module: self.module.fork(device), link: self.link } }
    }

    fn to_device(self, device: &Device) -> Self {
        if self.is_sharded() { self } else { Self { module: self.module.to_device(device), link: self.link } }
    }

    fn train(self) -> Self {
        if self.is_sharded() { self } else { Self { module: self.module.train(), link: self.link } }
    }

    fn valid(&self) -> Self {
        if self.is_sharded() { self.clone() } else { Self::new(self.module.valid()) }
    }

    fn materialize(self) -> Self {
        if self.is_sharded() { self } else { Self { module: self.module.materialize(), link: self.link } }
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        settle(&self.link, &self.module);
        within(&self.link, || self.module.visit(visitor));
    }

    fn map<T: ModuleMapper>(self, mapper: &mut T) -> Self {
        settle(&self.link, &self.module);
        let module = within(&self.link, || self.module.map(mapper));
        Self { module, link: self.link }
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplayDefault for Unit<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.module.content(content)
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplay for Unit<M> {}
