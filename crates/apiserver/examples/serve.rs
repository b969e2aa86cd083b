//! Starts the API server alone, for trying clients against it.
//!
//! `cargo run -p orlop-apiserver --example serve -- <folder> [address]`

use std::path::PathBuf;

use orlop_apiserver::{ApiServer, Config, Pki, Storage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder: PathBuf = arguments.next().ok_or("name a folder for the data")?.into();
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:6443".to_owned());
    std::fs::create_dir_all(&folder)?;
    let pki = Pki::open(&folder.join("pki"), jiff::Timestamp::now())?;
    let server = ApiServer::open(Config::new(Storage::Disk(folder.join("store")))).await?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let url = format!("https://{}", listener.local_addr()?);
    pki.write_kubeconfig(&folder.join("kubeconfig"), &url)?;
    println!(
        "{url}\nexport KUBECONFIG={}",
        folder.join("kubeconfig").display()
    );
    server.serve(listener, pki.tls(&[])?, stopped()).await;
    server.shutdown().await;
    Ok(())
}

async fn stopped() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("could not wait for Ctrl-C: {error}");
    }
}
