//! What `packaging` makes of the program: a Debian package with its units for systemd, and a container.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tokio::process::Command;

use crate::common::finish;

/// Where systemd's own units are that ours refer to.
const SYSTEM_UNITS: &str = "/lib/systemd/system";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// What a command writes, which must succeed.
async fn written(command: &mut Command) -> String {
    let output = finish(command).await;
    assert_eq!(output.status, Some(0), "{command:?}: {output:?}");
    output.stdout.trim_end().to_owned()
}

/// The Debian package, unpacked into a directory.
async fn unpacked() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut build = Command::new(root().join("packaging/debian/build"));
    build.arg(env!("CARGO_BIN_EXE_lock")).arg(dir.path());
    // A package of a program that is not optimised is large.
    let package = written(build.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1")).await;
    let system = dir.path().join("system");
    written(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&system)).await;
    (dir, package.into())
}

#[tokio::test]
async fn the_debian_package_says_what_it_needs_and_its_program_runs() {
    let (dir, package) = unpacked().await;
    let field = async |name| written(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).await;
    assert_eq!([field("Package").await, field("Version").await], ["lock-cli", env!("CARGO_PKG_VERSION")]);
    assert!(field("Depends").await.starts_with("libc6 (>= "), "{}", field("Depends").await);

    let contents = written(Command::new("dpkg-deb").arg("--contents").arg(&package)).await;
    assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");
    let doc = "./usr/share/doc/lock-cli";
    for file in ["copyright", "CHANGELOG.md.gz", "examples/lock.toml", "examples/cron/nightly-report"] {
        let there = format!(" {doc}/{file}");
        assert!(contents.lines().any(|line| line.ends_with(&there)), "{file} is missing: {contents}");
    }
    let makes_pages = finish(Command::new(env!("CARGO_BIN_EXE_lock")).arg("man")).await.status == Some(0);
    for file in ["man/man1/lock.1.gz", "bash-completion/completions/lock"] {
        assert_eq!(contents.contains(&format!(" ./usr/share/{file}")), makes_pages, "{file}: {contents}");
    }

    let program = dir.path().join("system/usr/bin/lock");
    let version = written(Command::new(&program).arg("--version")).await;
    assert_eq!(version, format!("lock {}", env!("CARGO_PKG_VERSION")));
    let url = format!("local://{}", dir.path().join("locks").display());
    let mut run = Command::new(&program);
    run.args(["run", "a", "--", "sh", "-c", "echo $LOCK_NAME"]).env_remove("LOCK_CONFIG").env("LOCK_URL", url);
    assert_eq!(written(&mut run).await, "a");
}

#[tokio::test]
async fn systemd_takes_the_units_of_the_package_and_of_the_example() {
    let (dir, _package) = unpacked().await;
    let system = dir.path().join("system");
    let units = system.join("usr/lib/systemd/system");
    for unit in ["nightly-report.service", "nightly-report.timer"] {
        fs::copy(root().join("examples/cron").join(unit), units.join(unit)).unwrap();
    }
    for unit in fs::read_dir(SYSTEM_UNITS).unwrap().map(|unit| unit.unwrap().path()) {
        if unit.extension().is_some_and(|extension| extension == "target") {
            fs::copy(&unit, units.join(unit.file_name().unwrap())).unwrap();
        }
    }
    // The programs that an administrator has.
    for program in ["usr/local/bin/nightly-report", "etc/lock/elect/orders"] {
        let program = system.join(program);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::copy(root().join("examples/cron/nightly-report"), program).unwrap();
    }
    for unit in ["lock-elect@orders.service", "nightly-report.service", "nightly-report.timer"] {
        let mut verify = Command::new("systemd-analyze");
        verify.arg(format!("--root={}", system.display())).args(["--man=no", "--recursive-errors=yes", "verify", unit]);
        let output = finish(&mut verify).await;
        assert!(output.status == Some(0) && output.stderr.is_empty(), "{unit}: {output:?}");
    }
}

#[test]
fn the_example_of_a_configuration_is_one() {
    let text = fs::read_to_string(root().join("packaging/lock.toml")).unwrap();
    lock::Config::from_toml(&text).unwrap();
}

/// The last stage of the Containerfile is built, and runs. Images cannot be fetched here: the libraries of this machine stand for
/// the base, and the program of this test for what the first stage compiles.
#[tokio::test]
async fn the_container_runs_the_program_as_a_user_without_rights() {
    let dir = tempfile::tempdir().unwrap();
    let (base, compiled) = (dir.path().join("base"), dir.path().join("compiled"));
    let copy = |from: &str, to: PathBuf| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(&to, fs::read(from).unwrap()).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let program = env!("CARGO_BIN_EXE_lock");
    copy(program, compiled.join("src/target/release/lock"));
    copy("/dev/null", compiled.join("etc/ssl/certs/ca-certificates.crt"));
    copy("/bin/sh", base.join("bin/sh"));
    let libraries = written(Command::new("ldd").args([program, "/bin/sh"])).await;
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':')) {
        copy(library, base.join(&library[1..]));
    }

    let images = dir.path().join("images");
    let buildah = |arguments: &[&str]| {
        let mut buildah = Command::new("buildah");
        buildah
            .args(["--storage-driver", "vfs", "--root"])
            .arg(images.join("root"))
            .arg("--runroot")
            .arg(images.join("run"));
        buildah.args(arguments);
        buildah
    };
    let empty = written(&mut buildah(&["from", "scratch"])).await;
    written(&mut buildah(&["add", &empty, base.to_str().unwrap(), "/"])).await;
    written(&mut buildah(&["commit", "--quiet", &empty, "localhost/base"])).await;
    let from = format!("build={}", compiled.display());
    let mut build = buildah(&["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", "--tag", "lock"]);
    build
        .args(["--build-context", &from, "--file"])
        .arg(root().join("packaging/Containerfile"))
        .arg(dir.path().join("base"));
    written(&mut build).await;

    let container = written(&mut buildah(&["from", "localhost/lock"])).await;
    let script = "while read name user rest; do test $name != Uid: || echo $LOCK_NAME $user; done < /proc/self/status";
    let mut run = buildah(&["run", "--isolation", "chroot", "--env", "LOCK_URL=memory://", &container, "--"]);
    let said = written(run.args(["/usr/bin/lock", "run", "a", "--", "/bin/sh", "-c", script])).await;
    assert_eq!(said, "a 65532");
}

#[test]
fn the_container_is_built_of_what_is_there() {
    let file = fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"')).unwrap();
    assert!(file.contains(&format!("rust:{rust}-slim")), "another version of Rust than Cargo.toml has, {rust}");
    let package = format!("cargo build --release --locked --package {}\n", env!("CARGO_PKG_NAME"));
    assert!(file.contains(&package), "{file}");
    assert!(root().join("Cargo.lock").exists());
}
