//! One run of the guest.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::fitness::QEMU;
use super::share::Share;
use super::{initramfs, modules};

/// Memory, in MiB: what is written in the guest stays in it.
const MEMORY: u32 = 3072;

/// What is to be run.
pub(super) struct Guest {
    /// The guest's packages.
    pub(super) packages: PathBuf,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Its environment.
    pub(super) environment: Vec<(String, String)>,
    /// How long it may take.
    pub(super) bound: Duration,
}

/// How it ended.
pub(super) struct Ended {
    /// The program's exit code, if it got that far.
    pub(super) code: Option<i32>,
    /// The end of what the kernel said.
    pub(super) kernel: String,
}

impl Guest {
    /// Boots, runs, powers off. What the program prints goes to our output as it comes.
    pub(super) fn run(&self) -> Result<Ended> {
        let scratch = tempfile::Builder::new().prefix("orlop-vm-").tempdir()?;
        let scratch = scratch.path();
        let (kernel, version) = self.kernel()?;
        let archive = scratch.join("initramfs");
        let mut out = BufWriter::new(File::create(&archive)?);
        let modules = modules::to_load(&self.packages, &version)?;
        let script = self.script()?;
        initramfs::write(&mut out, &self.packages, &modules, &script, &self.seen()?)?;
        drop(out);
        let host = Share::serve(Path::new("/"), "host", scratch)?;
        let packages = Share::serve(&self.packages, "packages", scratch)?;
        let (log, code) = (scratch.join("kernel.log"), scratch.join("code"));
        let mut qemu = Command::new(QEMU);
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(["-m", &MEMORY.to_string()])
            .args([
                "-object",
                &format!("memory-backend-memfd,id=mem,size={MEMORY}M,share=on"),
            ])
            .args(["-numa", "node,memdev=mem"])
            .args([
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
                "-nic",
                "none",
            ])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(&archive)
            .args(["-append", "console=ttyS0 quiet panic=-1 loglevel=4"])
            .args(["-serial", &format!("file:{}", log.display())])
            .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"])
            .args(["-chardev", "stdio,id=out,signal=off"])
            .args(["-device", "virtserialport,chardev=out,name=out"])
            .args(["-chardev", &format!("file,id=code,path={}", code.display())])
            .args(["-device", "virtserialport,chardev=code,name=code"])
            // Held open: at its end QEMU would take the guest's output for unwanted.
            .stdin(Stdio::piped());
        for (name, share) in [("host", &host), ("packages", &packages)] {
            qemu.args([
                "-chardev",
                &format!("socket,id={name},path={}", share.socket.display()),
            ])
            .args([
                "-device",
                &format!("vhost-user-fs-pci,chardev={name},tag={name}"),
            ]);
        }
        let ended = wait(qemu.spawn().context("could not run qemu")?, self.bound);
        let kernel = fs::read_to_string(&log).unwrap_or_default();
        if let Err(error) = ended {
            bail!("{error:#}; the guest's kernel said:\n{}", tail(&kernel));
        }
        let code = fs::read_to_string(&code).unwrap_or_default();
        Ok(Ended {
            code: code.trim().parse().ok(),
            kernel: tail(&kernel),
        })
    }

    /// The kernel's file and version.
    fn kernel(&self) -> Result<(PathBuf, String)> {
        let boot = self.packages.join("boot");
        for entry in fs::read_dir(&boot)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(version) = name.strip_prefix("vmlinuz-") {
                let version = version.to_owned();
                return Ok((path, version));
            }
        }
        bail!("no kernel in {}; run scripts/setup-vm", boot.display());
    }

    /// Folders below `/tmp` that the guest needs: the checkout, and where its programs are.
    fn seen(&self) -> Result<Vec<PathBuf>> {
        let mut folders = vec![std::env::current_dir()?];
        let named = self.environment.iter().map(|(_, value)| value);
        for path in named.chain(&self.words).map(Path::new) {
            if path.is_absolute() && path.exists() {
                let folder = if path.is_dir() {
                    Some(path)
                } else {
                    path.parent()
                };
                folders.extend(folder.map(Path::to_owned));
            }
        }
        folders.retain(|folder| folder.starts_with("/tmp") && folder != Path::new("/tmp"));
        Ok(folders)
    }

    /// What the guest's shell runs.
    fn script(&self) -> Result<String> {
        let mut script = String::from(
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root\n",
        );
        for (name, value) in &self.environment {
            script += &format!("export {name}={}\n", quoted(value));
        }
        let here = std::env::current_dir()?;
        script += &format!("cd {}\n", quoted(&here.display().to_string()));
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        script += &format!("exec {}\n", words.join(" "));
        Ok(script)
    }
}

/// One word for a shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn wait(mut qemu: Child, bound: Duration) -> Result<()> {
    let begin = Instant::now();
    loop {
        if let Some(status) = qemu.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("qemu ended with {status}");
        }
        if begin.elapsed() > bound {
            let _ = qemu.kill();
            let _ = qemu.wait();
            bail!("the guest did not end within {} s", bound.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The last lines.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("a b$c"), "'a b$c'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
