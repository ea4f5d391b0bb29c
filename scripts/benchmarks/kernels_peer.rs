//! The parquet crate's split-block filter under the protocol of scripts/benchmarks/kernels.py:
//! arguments are the number of values and of bytes; each line "insert" or "check" on stdin is answered by seconds
//! and, for a check, by how many values were found.
use parquet::bloom_filter::Sbbf;
use std::io::BufRead;
use std::time::Instant;

fn value(i: u64) -> i64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (count, bytes) = (arguments[0], arguments[1] as usize);
    let stored: Vec<i64> = (0..count).map(value).collect();
    let asked: Vec<i64> = (count / 2..count / 2 + count).map(value).collect();
    let mut filter = Sbbf::new(&vec![0u8; bytes]);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        match line.unwrap().as_str() {
            "insert" => {
                let mut fresh = Sbbf::new(&vec![0u8; bytes]);
                let start = Instant::now();
                for v in &stored {
                    fresh.insert(v);
                }
                println!("{} 0", start.elapsed().as_secs_f64());
                filter = fresh;
            }
            _ => {
                let start = Instant::now();
                let found = asked.iter().filter(|v| filter.check(*v)).count();
                println!("{} {}", start.elapsed().as_secs_f64(), found);
            }
        }
    }
}
