//! Modules that take the place of Burn's: where these would keep a gathered parameter alive, or look at one rank's records
//! only.

mod embedding;
mod sync_batch_norm;

pub use embedding::Embedding;
pub use sync_batch_norm::SyncBatchNorm;
