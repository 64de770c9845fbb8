//! The layouts of other libraries on simulated servers: what the programs of these libraries do not show.

use lock_core::Locks;
use lock_sim::zookeeper::deployment::{Cut, Deployment};
use lock_zk::Layout;

use crate::simulation::{connect_with, lock, simulated};

const FOREIGN: [Layout; 2] = [Layout::Curator, Layout::Kazoo];

async fn foreign_locks(servers: &Deployment, host: usize, layout: Layout) -> Locks {
    Locks::new(connect_with(servers, host, servers.config(host).with_layout(layout).with_root("/")).await)
}

#[test]
fn a_change_of_the_holders_node_hands_nothing_on() {
    for layout in FOREIGN {
        simulated(async move |servers| {
            let (holder, other) = (foreign_locks(&servers, 1, layout).await, foreign_locks(&servers, 2, layout).await);
            let guard = holder.mutex("a/b").lock().await.unwrap();
            let mut waiting = lock(&servers, 2, &other, "a/b");
            servers.until("both stand in line", async || servers.children("/a/b").await.len() == 2).await;
            servers.settle().await;
            // As a program of Curator's that asks the holder for the lock.
            let holders = holder.inspect("a/b").await.unwrap().holders.remove(0).id;
            servers.write(&format!("/a/b/{holders}")).await;
            servers.settle().await;
            assert!(matches!(waiting.try_recv(), Ok(None)), "nobody was granted");
            assert!(guard.is_valid());
            guard.release().await.unwrap();
            drop(waiting.await.unwrap().unwrap());
        });
    }
}

#[test]
fn a_directory_stays_where_the_other_librarys_programs_count_on_it_and_goes_where_they_make_it_anew() {
    simulated(async |servers| {
        for (layout, above, stays) in [(Layout::Curator, "curators", false), (Layout::Kazoo, "kazoos", true)] {
            let locks = foreign_locks(&servers, 1, layout).await;
            let (above, directory) = (format!("/{above}"), format!("{above}/a"));
            for _ in 0..2 {
                locks.mutex(&directory).lock().await.unwrap().release().await.unwrap();
                for path in [&format!("/{directory}"), &above] {
                    servers.reap().await;
                    assert_eq!(servers.exists(path).await, stays, "{layout:?} {path}");
                }
            }
        }
    });
}

#[test]
fn a_create_without_an_answer_is_found_by_its_id_and_leaves_nothing_behind() {
    for layout in FOREIGN {
        simulated(async move |servers| {
            let locks = foreign_locks(&servers, 1, layout).await;
            locks.mutex("a/b").lock().await.unwrap().release().await.unwrap();
            servers.cut(1, Cut::Answers).await;
            let acquiring = lock(&servers, 1, &locks, "a/b");
            let nodes = async || servers.children("/a/b").await;
            servers.until("the create has arrived", async || nodes().await.len() == 1).await;
            let made = nodes().await;
            servers.reset(1).await;
            servers.heal(1).await;
            let guard = acquiring.await.unwrap().unwrap();
            assert_eq!(nodes().await, made, "the same node");
            guard.release().await.unwrap();
            servers.until("nothing is left", async || nodes().await.is_empty()).await;
        });
    }
}
