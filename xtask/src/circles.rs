//! No modules of a crate know each other in a circle: who changes one of them would have to understand all. What is within a
//! module, and a module's knowledge of what it is within, is not counted; nor is what stands in the arguments of a macro.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::{Attribute, Item, UseTree, visit::Visit};

/// The names from the root of a crate to a module, or to something within one.
type ModulePath = Vec<String>;

/// What is known of one module of a crate.
#[derive(Debug, Default)]
struct Module {
    /// The paths in it, as they are written.
    paths: BTreeSet<Vec<String>>,
    /// What the names stand for that it imports.
    imports: BTreeMap<String, Vec<String>>,
}

/// The modules of a crate, but for its tests.
#[derive(Debug, Default)]
struct CrateModules(BTreeMap<ModulePath, Module>);

impl CrateModules {
    fn read(sources: &Path) -> Self {
        let mut modules = Self::default();
        let root = ["lib.rs", "main.rs"].map(|root| sources.join(root)).into_iter().find(|root| root.exists());
        modules.read_file(&root.expect("a library or a program"), sources, Vec::new());
        modules
    }

    /// Reads a module that is a file; those within it are in `directory`.
    fn read_file(&mut self, file: &Path, directory: &Path, module: ModulePath) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, directory, module);
    }

    fn read_items(&mut self, items: &[Item], directory: &Path, module: ModulePath) {
        let mut here = Module::default();
        for item in items.iter().filter(|item| !is_test(item)) {
            let Item::Mod(inner) = item else {
                here.visit_item(item);
                continue;
            };
            let (name, directory) = (inner.ident.to_string(), directory.join(inner.ident.to_string()));
            let within = [module.clone(), vec![name]].concat();
            match &inner.content {
                Some((_, items)) => self.read_items(items, &directory, within),
                None if directory.join("mod.rs").exists() => {
                    self.read_file(&directory.join("mod.rs"), &directory, within);
                }
                None => self.read_file(&directory.with_extension("rs"), &directory, within),
            }
        }
        self.0.insert(module, here);
    }

    /// The module that `path`, as it is written in `module`, leads to; `None` for one of another crate.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let mut here = module.to_vec();
        let mut is_begun = false;
        for (place, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => here.clear(),
                "self" => {}
                "super" => drop(here.pop()?),
                name => {
                    here.push(name.to_owned());
                    if !self.0.contains_key(&here) {
                        here.pop();
                        // A name that an import begins with is that of another crate.
                        let imports = &self.0[&here].imports;
                        let imported = imports.get(name).filter(|path| path.first().is_some_and(|first| first != name));
                        let target =
                            imported.and_then(|path_of| self.resolve(&here, &[path_of, &path[place + 1..]].concat()));
                        return target.or(is_begun.then_some(here));
                    }
                }
            }
            is_begun = true;
        }
        Some(here)
    }

    /// Which modules each knows.
    fn known(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let known = |module: &ModulePath, paths: &BTreeSet<Vec<String>>| {
            let known = paths.iter().filter_map(|path| self.resolve(module, path));
            known.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
        };
        self.0.iter().map(|(module, Module { paths, .. })| (module, known(module, paths))).collect()
    }

    /// Modules that know each other in a circle, if there are any.
    fn circle(&self) -> Option<Vec<String>> {
        let known = self.known();
        let mut done = BTreeSet::new();
        known.keys().find_map(|module| circle(&known, module, &mut Vec::new(), &mut done))
    }
}

/// A circle on the ways from `module`, to which `way` has led.
fn circle<'a>(
    known: &'a BTreeMap<&ModulePath, BTreeSet<ModulePath>>,
    module: &'a ModulePath,
    way: &mut Vec<&'a ModulePath>,
    done: &mut BTreeSet<&'a ModulePath>,
) -> Option<Vec<String>> {
    if let Some(begin) = way.iter().position(|earlier| *earlier == module) {
        return Some(way[begin..].iter().map(|module| module.join("::")).collect());
    }
    if !done.insert(module) {
        return None;
    }
    way.push(module);
    let found = known[module].iter().find_map(|other| circle(known, other, way, done));
    way.pop();
    found
}

impl Module {
    fn import(&mut self, tree: &UseTree, mut before: Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before.clone())),
            UseTree::Glob(_) => drop(self.paths.insert(before)),
            UseTree::Name(name) if name.ident == "self" => self.named(before.last().cloned(), before),
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.named(Some(name.ident.to_string()), before);
            }
            UseTree::Rename(renamed) => {
                before.push(renamed.ident.to_string());
                self.named(Some(renamed.rename.to_string()), before);
            }
        }
    }

    fn named(&mut self, name: Option<String>, path: Vec<String>) {
        self.imports.extend(name.map(|name| (name, path.clone())));
        self.paths.insert(path);
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

/// Whether an item is there for tests alone.
fn is_test(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| condition.path().is_ident("test"))
    })
}

#[test]
fn no_modules_know_each_other_in_a_circle() {
    let packages = crate::packages::workspace().unwrap().packages;
    assert!(packages.len() > 10, "{packages:?}");
    for package in packages {
        let sources = package.manifest_path.with_file_name("src");
        let modules = CrateModules::read(sources.as_std_path());
        assert_eq!(modules.circle(), None, "of {}", package.name);
    }
}

#[test]
fn a_circle_is_found_whichever_way_a_module_is_named() {
    let circle = |text: &str| {
        let mut modules = CrateModules::default();
        modules.read_items(&syn::parse_file(text).unwrap().items, Path::new("."), Vec::new());
        modules.circle()
    };
    let of_two = Some(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(circle("mod a { use super::b::B; } mod b { pub struct B; fn of(_: crate::a::A) {} }"), of_two);
    assert_eq!(circle("mod a { use crate::b; } mod b { use crate::A; } pub use a::A;"), of_two);
    assert_eq!(circle("mod a { fn of() { crate::b::of() } } mod b { use super::{a::{self}, c}; } mod c {}"), of_two);
    assert_eq!(
        circle("mod a { use crate::b::B; mod within { use crate::c::C; } } mod b {} mod c { use crate::b; }"),
        None
    );
    assert_eq!(circle("mod a { use crate::b::B; } mod b { #[cfg(test)] mod tests { use crate::a::A; } }"), None);
}
