//! Trains lenet with every shard and all optimizer state in files.
//!
//! `cargo xtask example own-offload-target`

use own_offload_target as _;
use stoker::config::DataSource;
use stoker::{Progress, Settings, Sources, TrainOptions, train};

fn main() -> stoker::Result<()> {
    let sources = Sources {
        overrides: ["offload.name=file", "run.ranks=2", "data.train_records=1024", "data.valid_records=200"]
            .map(str::to_owned)
            .to_vec(),
        ..Sources::from_env()
    };
    let (mut settings, _provenance) = Settings::load(&sources)?;
    settings.data.source = DataSource::Builtin;
    let summary = train(&settings, &TrainOptions { progress: Progress::Silent, ..TrainOptions::default() })?;
    println!("{summary}");
    Ok(())
}
