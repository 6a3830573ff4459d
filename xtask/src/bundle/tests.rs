use super::*;
use std::process::Output;
use tempfile::TempDir;

/// What both programs do: show what `run.sh` gives them.
const SHOW: &str = "#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\necho \"$CIFAR_BIN\"\necho \"$# $*\"\nexit 7\n";

/// A bundle of two programs, and a machine with PyTorch of the given version.
struct Machine(TempDir);

impl Machine {
    fn new(torch: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for dir in ["a bundle/programs", "bin", "site/torch/lib", "site/nvidia/cu13/lib", "site/nvidia/nccl/lib"] {
            fs::create_dir_all(machine.at(dir)).unwrap();
        }
        let bundle = machine.at("a bundle");
        write_run(&bundle).unwrap();
        for program in ["programs/show", "programs/tell"] {
            fs::write(bundle.join(program), SHOW).unwrap();
            pack(&bundle.join(program)).unwrap();
        }
        machine.python(&format!("echo \"{torch} {}\"", machine.at("site/torch").display()));
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn python(&self, does: &str) {
        let python = self.at("bin/python3");
        fs::write(&python, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run_in(&self, path: &str, arguments: &[&str]) -> Output {
        let mut run = Command::new("/bin/sh");
        run.arg(self.at("a bundle/run.sh")).args(arguments).env("PATH", path).env("LD_LIBRARY_PATH", "/before");
        run.output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_in(&format!("{}:/usr/bin:/bin", self.at("bin").display()), arguments)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_program_is_run_with_the_libraries_of_pytorch() {
    let machine = Machine::new(&format!("{}+cu130", libtorch::TORCH));
    let site = machine.at("site").display().to_string();
    let bundle = machine.at("a bundle").display().to_string();
    let wanted = format!(
        "{site}/torch/lib:{site}/nvidia/cu13/lib:{site}/nvidia/nccl/lib:/before\n{bundle}/cifar.bin\n2 a  b c\n"
    );
    // Packed at first, unpacked the second time.
    for _ in 0..2 {
        let output = machine.run(&["show", "a  b", "c"]);
        assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), wanted);
        assert_eq!(output.status.code(), Some(7), "the program's own exit code");
        assert_eq!(said(&output), "");
    }
    let programs = list(&machine.at("a bundle/programs")).unwrap();
    assert_eq!(programs.len(), 3, "nothing else is left over: {programs:?}");
}

#[test]
fn another_version_of_pytorch_is_warned_of() {
    let output = Machine::new("2.9.1").run(&["show"]);
    assert!(said(&output).contains("PyTorch is 2.9.1, and this was built with"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn what_is_missing_is_said_with_exit_code_2() {
    let machine = Machine::new(libtorch::TORCH);
    let unknown = [&["shower"][..], &["sh"], &["../show"], &["show tell"], &["*"], &[""], &[]];
    for arguments in unknown {
        let output = machine.run(arguments);
        assert!(said(&output).contains("wanted one of: show tell\n"), "{arguments:?}: {}", said(&output));
        assert_eq!(output.status.code(), Some(2));
    }
    let output = machine.run_in("/nowhere", &["show"]);
    assert!(said(&output).contains("found no python3"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(2));
    machine.python("echo \"No module named 'torch'\" >&2; exit 1");
    let output = machine.run(&["show"]);
    assert!(said(&output).contains("has no PyTorch"), "{}", said(&output));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

/// Makes a bundle of one file.
fn made(out: &Path, limit: u64, content: &str) -> Result<u64, BundleError> {
    publish(out, limit, |part| {
        fs::create_dir(part.join("in")).unwrap();
        fs::write(part.join(MARKER), "").and_then(|()| fs::write(part.join("in/file"), content)).unwrap();
        Ok(())
    })
}

#[test]
fn a_bundle_is_replaced_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    assert_eq!(made(&out, 5, "older").unwrap(), 5);
    fs::write(out.join("unpacked"), "").unwrap();
    let error = made(&out, 5, "larger").unwrap_err();
    assert!(matches!(error, BundleError::TooLarge { found: 6, limit: 5 }), "{error}");
    assert_eq!(fs::read_to_string(out.join("in/file")).unwrap(), "older");
    assert!(out.join("unpacked").is_file());
    assert_eq!(made(&out, 5, "new").unwrap(), 3);
    assert_eq!(fs::read_to_string(out.join("in/file")).unwrap(), "new");
    assert!(!out.join("unpacked").exists());
    assert_eq!(list(&dir.path().join("new")).unwrap(), [out], "nothing is left beside it");
}

#[test]
fn what_is_no_bundle_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years").unwrap();
    for out in [dir.path().to_path_buf(), dir.path().join("thesis.tex"), PathBuf::from("/"), PathBuf::from("..")] {
        let error = made(&out, LIMIT, "new").unwrap_err();
        assert!(matches!(error, BundleError::NotABundle { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("thesis.tex")).unwrap(), "years");
    assert_eq!(list(dir.path()).unwrap().len(), 1);
}

#[test]
fn records_are_the_first_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data_batch_1.bin");
    let wanted = RECORDS * data::CIFAR10_RECORD_BYTES;
    assert!(matches!(records(&file), Err(BundleError::Records { found: 0, .. })));
    let mut content = vec![3_u8; wanted as usize];
    fs::write(&file, &content[1..]).unwrap();
    let error = records(&file).unwrap_err().to_string();
    assert!(error.contains("`cargo xtask data cifar10`") && error.contains(&(wanted - 1).to_string()), "{error}");
    content.push(4);
    fs::write(&file, &content).unwrap();
    assert_eq!(records(&file).unwrap(), content[..wanted as usize]);
}
