//! Two images of Debian's busybox-static, made on the spot: one for containers, one that holds a
//! pod's namespaces.

use std::path::Path;

use serde_json::json;

pub(crate) const BUSYBOX: &str = "orlop.test/busybox:1";
pub(crate) const PAUSE: &str = "orlop.test/pause:1";

const COMMANDS: [&str; 10] = [
    "cat", "date", "echo", "ls", "mount", "rm", "sh", "sleep", "touch", "true",
];

/// Writes an archive of both, as `docker save` would.
pub(crate) fn write(archive: &Path) {
    let busybox = std::fs::read("/bin/busybox").expect("busybox");
    let mut layer = Tar::default();
    for folder in [
        "bin/", "dev/", "etc/", "part/", "proc/", "sys/", "tmp/", "v/",
    ] {
        layer.entry(folder, b'5', b"");
    }
    layer.entry("bin/busybox", b'0', &busybox);
    for command in COMMANDS {
        layer.link(&format!("bin/{command}"), "busybox");
    }
    let layer = layer.finish();
    let digest = sha256(&layer);
    let mut outer = Tar::default();
    outer.entry("layer.tar", b'0', &layer);
    let mut manifest = Vec::new();
    for (index, (name, command)) in [
        (BUSYBOX, ["/bin/sh", "-c", "true"]),
        (PAUSE, ["/bin/busybox", "sleep", "1000000"]),
    ]
    .into_iter()
    .enumerate()
    {
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let file = format!("{index}.json");
        outer.entry(&file, b'0', config.to_string().as_bytes());
        manifest.push(json!({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}));
    }
    outer.entry(
        "manifest.json",
        b'0',
        json!(manifest).to_string().as_bytes(),
    );
    std::fs::write(archive, outer.finish()).expect("an archive");
}

fn sha256(bytes: &[u8]) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut child = Command::new("/usr/bin/sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(bytes).expect("it reads");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends").stdout;
    String::from_utf8_lossy(&said[..64]).into_owned()
}

#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn entry(&mut self, name: &str, kind: u8, content: &[u8]) {
        self.header(name, kind, content.len(), "");
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn link(&mut self, name: &str, to: &str) {
        self.header(name, b'2', 0, to);
    }

    fn header(&mut self, name: &str, kind: u8, size: usize, link: &str) {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, "0000755\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{size:011o}\0"));
        put(136, "00000000000\0");
        put(148, "        ");
        put(157, link);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}
