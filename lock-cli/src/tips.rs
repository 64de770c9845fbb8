//! What a wrong command line is told beside the error, where the parser would say what does not help.

use clap::{
    Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Words of other programs that lock, and what is meant here.
const OTHER_WORDS: [(&[&str], &str); 2] = [
    (
        &["unlock", "free", "give"],
        "there is nothing to unlock: `lock run NAME -- COMMAND` gives the lock back when COMMAND has ended",
    ),
    (&["lock", "acquire", "take", "exec", "try", "with"], "`lock run NAME -- COMMAND` holds a lock while COMMAND runs"),
];

/// The error with tips that work.
pub(crate) fn with_tips(mut error: Error) -> Error {
    let text = |error: &Error, kind| error.get(kind).map(ContextValue::to_string).unwrap_or_default();
    // Of `lock run` and `lock elect`.
    let runs_command = text(&error, ContextKind::Usage).contains("<COMMAND>...");
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(&error, ContextKind::InvalidSubcommand);
            let Some((_, tip)) = OTHER_WORDS.iter().find(|(words, _)| words.contains(&word.as_str())) else {
                return error;
            };
            error.remove(ContextKind::SuggestedSubcommand);
            (*tip).to_owned()
        }
        ErrorKind::UnknownArgument if runs_command => match text(&error, ContextKind::InvalidArg) {
            option if option.starts_with('-') => format!("if that is what to lock, write '--name={option}'"),
            word => format!("a '--' goes before the command: '-- {word}', if that is where it begins"),
        },
        ErrorKind::MissingRequiredArgument if text(&error, ContextKind::InvalidArg).contains("<COMMAND>") => {
            "the command follows a '--'".to_owned()
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}
