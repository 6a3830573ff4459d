//! Modules that take the place of Burn's where Burn's would keep a gathered parameter alive.

mod embedding;

pub use embedding::Embedding;
