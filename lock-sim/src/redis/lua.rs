//! Scripts. Each thread has one interpreter and compiles each script once.
//!
//! The interpreter is that of `LuaJIT`: it runs the language of the servers, Lua 5.1, and a schedule takes four fifths of the time
//! that it takes with theirs. The just-in-time compiler is off, because the library `jit` is not opened.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use mlua::{
    BString, BorrowedBytes, Either, Function, IntoLua, Lua, LuaOptions, MultiValue, StdLib, String as LuaString, Table,
    Value as LuaValue,
};

use super::{msgpack, reply::Reply, store::Store, structs};

/// What a schedule takes out of the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// Of which safeguard.
    pub name: &'static str,
    /// The text that upholds it, as it stands in scripts, and what stands in its place without it.
    pub changes: &'static [(&'static str, &'static str)],
}

/// A script that a simulated server knows: its source, and its compiled form for each safeguard that is taken out.
struct Script {
    source: Rc<str>,
    compiled: Vec<(Option<&'static str>, Function)>,
}

/// The Lua interpreter of a simulated server, with the scripts that it knows.
struct Engine {
    lua: Lua,
    globals: Table,
    /// The names by which scripts know their keys and their arguments.
    keys: LuaString,
    arguments: LuaString,
    by_hash: HashMap<Vec<u8>, Script>,
    /// Their hashes by their sources, of which few are of one length.
    hashes: Vec<(Vec<u8>, Rc<[u8]>)>,
}

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    /// The store of the script that runs.
    static STORE: RefCell<Store> = RefCell::default();
}

/// Makes a script known to this thread, and gives the hash by which it is called.
#[must_use]
pub fn load(source: &[u8]) -> Rc<[u8]> {
    with_engine(|engine| {
        if let Some((_, known)) = engine.hashes.iter().find(|(its, _)| its == source) {
            return Rc::clone(known);
        }
        let hash: Rc<[u8]> = sha1_smol::Sha1::from(source).hexdigest().into_bytes().into();
        let text = String::from_utf8_lossy(source).into_owned();
        engine.by_hash.insert(hash.to_vec(), Script { source: text.into(), compiled: Vec::new() });
        engine.hashes.push((source.to_vec(), Rc::clone(&hash)));
        hash
    })
}

/// Runs a script that was loaded, and gives its answer.
#[must_use]
pub fn run(store: &mut Store, hash: &[u8], keys: &[&[u8]], arguments: &[&[u8]], without: Option<&Removal>) -> Reply {
    let prepared = with_engine(|engine| {
        let function = engine.function(hash, without)?;
        engine.globals.raw_set(&engine.keys, words(&engine.lua, keys)?)?;
        engine.globals.raw_set(&engine.arguments, words(&engine.lua, arguments)?)?;
        Ok(function)
    });
    let function = match prepared {
        Ok(function) => function,
        Err(error) => return failure(&error),
    };
    STORE.with_borrow_mut(|running| std::mem::swap(running, store));
    let answer: mlua::Result<LuaValue> = function.call(());
    STORE.with_borrow_mut(|running| std::mem::swap(running, store));
    match answer.and_then(|answer| reply(&answer)) {
        Ok(reply) => reply,
        Err(error) => failure(&error),
    }
}

fn with_engine<T>(work: impl FnOnce(&mut Engine) -> T) -> T {
    ENGINE.with_borrow_mut(|engine| work(engine.get_or_insert_with(Engine::new)))
}

/// What a script that raises an error answers: the error of the command that it called, or its own.
fn failure(error: &mlua::Error) -> Reply {
    match error {
        mlua::Error::CallbackError { cause, .. } => failure(cause),
        mlua::Error::ExternalError(said) => Reply::Error(said.to_string()),
        other => Reply::err(&other.to_string().replace('\n', " ")),
    }
}

impl Engine {
    fn new() -> Self {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default());
        let lua = lua.unwrap_or_else(|error| panic!("no interpreter: {error}"));
        // A small heap stays in the processor's cache, and that is worth more than the seldom marking of a large one.
        lua.gc_set_pause(150);
        lua.gc_set_step_multiplier(400);
        let prepared = prepare(&lua).and_then(|()| Ok((lua.create_string("KEYS")?, lua.create_string("ARGV")?)));
        let (keys, arguments) = prepared.unwrap_or_else(|error| panic!("no interpreter: {error}"));
        Self { globals: lua.globals(), lua, keys, arguments, by_hash: HashMap::new(), hashes: Vec::new() }
    }

    fn function(&mut self, hash: &[u8], without: Option<&Removal>) -> mlua::Result<Function> {
        let script = self.by_hash.get_mut(hash).ok_or_else(|| mlua::Error::runtime("not loaded"))?;
        let name = without.map(|removal| removal.name);
        if let Some((_, known)) = script.compiled.iter().find(|(its, _)| *its == name) {
            return Ok(known.clone());
        }
        let mut source = script.source.to_string();
        for (anchor, instead) in without.map_or(&[][..], |removal| removal.changes) {
            source = source.replace(anchor, instead);
        }
        let function = self.lua.load(source).set_name("@user_script").into_function()?;
        script.compiled.push((name, function.clone()));
        Ok(function)
    }
}

/// What scripts find beside Lua itself.
fn prepare(lua: &Lua) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let ok = one_field(lua, "ok", &lua.create_string("OK")?)?;
        redis.set(name, lua.create_function(move |lua, arguments| call(lua, &ok, arguments, raises))?)?;
    }
    for (name, field) in [("status_reply", "ok"), ("error_reply", "err")] {
        let reply = lua.create_function(move |lua, text: LuaString| one_field(lua, field, &text))?;
        redis.set(name, reply)?;
    }
    let hash = |_: &Lua, text: LuaString| Ok(sha1_smol::Sha1::from(&*text.as_bytes()).hexdigest());
    redis.set("sha1hex", lua.create_function(hash)?)?;
    lua.globals().set("redis", redis)?;
    let packs = lua.create_table()?;
    packs.set("pack", lua.create_function(|lua, value: LuaValue| lua.create_string(msgpack::pack(&value)?))?)?;
    packs.set("unpack", lua.create_function(|lua, packed: LuaString| msgpack::unpack(lua, &packed.as_bytes()))?)?;
    lua.globals().set("cmsgpack", packs)?;
    let structs = lua.create_table()?;
    structs.set("pack", lua.create_function(|lua, arguments: MultiValue| structs::pack(lua, &arguments))?)?;
    structs.set("unpack", lua.create_function(|_, arguments: MultiValue| structs::unpack(&arguments))?)?;
    lua.globals().set("struct", structs)
}

fn one_field(lua: &Lua, field: &str, text: &LuaString) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, text)?;
    Ok(table)
}

fn words(lua: &Lua, words: &[&[u8]]) -> mlua::Result<Table> {
    lua.create_sequence_from(words.iter().map(|word| text(word)))
}

/// Bytes as a script has them. The interpreter takes those of a text without keeping a place for them.
fn text(bytes: &[u8]) -> Either<&str, Bytes<'_>> {
    std::str::from_utf8(bytes).map_or(Either::Right(Bytes(bytes)), Either::Left)
}

/// Bytes that are no text.
struct Bytes<'a>(&'a [u8]);

impl IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<LuaValue> {
        Ok(LuaValue::String(lua.create_string(self.0)?))
    }
}

/// What a script passes to a command.
enum Word<'a> {
    Text(BorrowedBytes<'a>),
    Number(String),
}

impl Word<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.as_bytes(),
        }
    }
}

fn word(argument: &LuaValue) -> mlua::Result<Word<'_>> {
    match argument {
        LuaValue::String(text) => Ok(Word::Text(text.as_bytes())),
        LuaValue::Integer(number) => Ok(Word::Number(number.to_string())),
        // As `%.17g` writes what is whole and below 10^17, which is all that these scripts have.
        LuaValue::Number(number) => Ok(Word::Number(format!("{number}"))),
        _ => Err(wrong_argument()),
    }
}

/// What a command comes to in a script: a text, or something else.
type Answer = Either<String, LuaValue>;

/// What a script calls a command with: its name, its key, and the rest. The interpreter gives the first two, which are texts,
/// without keeping a place for them.
type CommandArguments = (BString, Option<BString>, MultiValue);

fn call(lua: &Lua, ok: &Table, (name, key, rest): CommandArguments, raises: bool) -> mlua::Result<Answer> {
    if key.is_none() && !rest.is_empty() {
        return Err(wrong_argument());
    }
    let mut texts = Vec::with_capacity(rest.len());
    for argument in &rest {
        texts.push(word(argument)?);
    }
    let mut words: Vec<&[u8]> = Vec::with_capacity(2 + texts.len());
    words.push(&name);
    words.extend(key.as_ref().map(|key| key.as_slice()));
    words.extend(texts.iter().map(Word::bytes));
    let reply = STORE.with_borrow_mut(|store| store.command(&words));
    match reply {
        Reply::Error(text) if raises => Err(mlua::Error::external(text)),
        // The same table for all of them: no script changes it.
        Reply::Status(text) if text == "OK" => Ok(Either::Right(LuaValue::Table(ok.clone()))),
        reply => to_lua(lua, reply),
    }
}

fn wrong_argument() -> mlua::Error {
    mlua::Error::external("ERR Lua redis lib command arguments must be strings or integers")
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Answer> {
    Ok(Either::Right(match reply {
        Reply::Nil => LuaValue::Boolean(false),
        Reply::Int(number) => number.into_lua(lua)?,
        Reply::Bulk(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return Ok(Either::Left(text)),
            Err(error) => Bytes(error.as_bytes()).into_lua(lua)?,
        },
        Reply::Status(text) => LuaValue::Table(one_field(lua, "ok", &lua.create_string(&*text)?)?),
        Reply::Error(text) => LuaValue::Table(one_field(lua, "err", &lua.create_string(text)?)?),
        Reply::Array(parts) => {
            let parts = parts.into_iter().map(|part| to_lua(lua, part)).collect::<mlua::Result<Vec<_>>>()?;
            LuaValue::Table(lua.create_sequence_from(parts)?)
        }
    }))
}

fn reply(value: &LuaValue) -> mlua::Result<Reply> {
    Ok(match value {
        LuaValue::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Reply::Int(*number),
        #[expect(clippy::cast_possible_truncation, reason = "as the server does")]
        LuaValue::Number(number) => Reply::Int(*number as i64),
        LuaValue::Boolean(true) => Reply::Int(1),
        LuaValue::Table(table) => {
            if let Some(text) = table.raw_get::<Option<LuaString>>("err")? {
                return Ok(Reply::Error(text.to_string_lossy()));
            }
            if let Some(text) = table.raw_get::<Option<LuaString>>("ok")? {
                return Ok(Reply::Status(text.to_string_lossy().into()));
            }
            let mut parts = Vec::with_capacity(table.raw_len());
            for place in 1.. {
                match table.raw_get::<LuaValue>(place)? {
                    LuaValue::Nil => break,
                    part => parts.push(reply(&part)?),
                }
            }
            Reply::Array(parts)
        }
        _ => Reply::Nil,
    })
}
