//! The parquet crate's split-block filter under the protocol of scripts/benchmarks/peers/pipe.py:
//! arguments are the number of values and of bytes; each line "insert" or "check" on stdin is answered by seconds on
//! the clock, seconds of CPU, and, for a check, by how many values were found.
use parquet::bloom_filter::Sbbf;
use std::io::BufRead;
use std::time::Instant;

fn value(i: u64) -> i64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64
}

/// Seconds of CPU of this thread, by Linux; yielding makes the kernel bring its count up to date.
fn cpu() -> f64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (count, bytes) = (arguments[0], arguments[1] as usize);
    let stored: Vec<i64> = (0..count).map(value).collect();
    let asked: Vec<i64> = (count / 2..count / 2 + count).map(value).collect();
    let mut filter = Sbbf::new(&vec![0u8; bytes]);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let mut found = 0;
        let (before, start);
        match line.unwrap().as_str() {
            "insert" => {
                let mut fresh = Sbbf::new(&vec![0u8; bytes]);
                (before, start) = (cpu(), Instant::now());
                for v in &stored {
                    fresh.insert(v);
                }
                filter = fresh;
            }
            _ => {
                (before, start) = (cpu(), Instant::now());
                found = asked.iter().filter(|v| filter.check(*v)).count();
            }
        }
        let wall = start.elapsed().as_secs_f64();
        println!("{} {} {}", wall, cpu() - before, found);
    }
}
