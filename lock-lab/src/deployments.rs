//! The deployments, one family in each file of this directory. A new file is found by itself.

automod::dir!("src/deployments");
