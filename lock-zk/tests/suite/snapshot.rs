//! A ZooKeeper server's snapshot, changed while the server is down: to have a directory whose counter is where no test can
//! count to.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A checksum, as its bytes, and the text `/`.
const SEAL: usize = 8 + 4 + 1;
/// What the sum over all nodes is: a transaction, a version, the sum.
const DIGEST: usize = 8 + 4 + 8;

/// Lets the newest snapshot in `data` say that `directory` has had that many sequential nodes and other changes of its
/// children, which is what the next sequential node is numbered with.
pub(crate) fn set_counter(data: &Path, directory: &str, counter: i32) {
    let file = newest(data);
    let mut bytes = fs::read(&file).unwrap();
    // It ends with a seal, the digest and another seal. Each has the sum over all bytes ahead of it.
    let seals = [bytes.len() - SEAL - DIGEST - SEAL, bytes.len() - SEAL];
    for seal in seals {
        assert_eq!(bytes[seal..seal + 8], checksum(&bytes[..seal]), "a snapshot of another form");
    }
    // A node: its path, its data, the number of its ACL, when it was made and changed, how often its data and children were.
    let path = [&u32::try_from(directory.len()).unwrap().to_be_bytes(), directory.as_bytes()].concat();
    let found = bytes.windows(path.len()).position(|window| window == path).expect("the directory");
    let after = found + path.len();
    let length = i32::from_be_bytes(bytes[after..after + 4].try_into().unwrap());
    let changes = after + 4 + usize::try_from(length).unwrap_or(0) + 8 + 4 * 8 + 4;
    bytes[changes..changes + 4].copy_from_slice(&counter.to_be_bytes());
    for seal in seals {
        let sum = checksum(&bytes[..seal]);
        bytes[seal..seal + 8].copy_from_slice(&sum);
    }
    fs::write(file, bytes).unwrap();
}

/// The snapshot of the latest transaction.
fn newest(data: &Path) -> PathBuf {
    let transaction = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        u64::from_str_radix(name.strip_prefix("snapshot.")?, 16).ok()
    };
    let files = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| transaction(path).is_some()).max_by_key(transaction).expect("a snapshot")
}

/// Adler-32, as the snapshot writes it down.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    const MODULUS: u64 = 65_521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u64::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    (high << 16 | low).to_be_bytes()
}
