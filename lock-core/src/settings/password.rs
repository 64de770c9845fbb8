//! Passwords: from a text or from a file, and never shown.

use std::{fmt, fs, path::PathBuf, sync::Arc};

use super::{Setting, Settings};
use crate::Error;

/// Where a password comes from. It is read at each sign-in, so that a file may change while the program runs.
///
/// No form of this type shows the password: not its `Debug`, and not an error about its file.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Password {
    /// It is this text.
    Text(Arc<str>),
    /// It is what this file holds, without the line break at its end.
    File {
        /// The setting that names the file, for errors.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl Password {
    /// The setting that names a file with the password of the URL's user.
    pub const FILE: Setting<&str> = Setting::text(
        "password_file",
        None,
        "a file with the password and nothing else, but for a line break at its end",
        "The file that holds the password, instead of the URL. It is read at each sign-in, so a changed password needs no restart.",
    );

    /// The password, as it is now.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, when it cannot be read or holds no password.
    pub fn read(&self) -> Result<String, Error> {
        let (setting, path) = match self {
            Self::Text(text) => return Ok(text.to_string()),
            Self::File { setting, path } => (*setting, path),
        };
        let refused = |why: &str| {
            let allowed = format!("a file with the password and nothing else ({why})");
            Error::config(setting, path.display().to_string(), allowed)
        };
        let mut text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
        text.truncate(text.strip_suffix('\n').map_or(text.len(), |line| line.trim_end_matches('\r').len()));
        match text.lines().count() {
            0 => Err(refused("it is empty")),
            1 => Ok(text),
            lines => Err(refused(&format!("it has {lines} lines"))),
        }
    }

    /// The password of the text `given`, or of the file that `setting` names.
    ///
    /// # Errors
    /// [`Error::Config`] when both are given, and as those of [`Password::read`]: a file that is of no use is found out at
    /// once.
    pub fn choose(
        settings: &mut Settings,
        given: Option<String>,
        setting: &Setting<&'static str>,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = setting.take(settings) else { return Ok(given.map(Self::from)) };
        if given.is_some() {
            return Err(Error::config(setting.key(), path, "nothing beside the password itself, or only the file"));
        }
        let file = Self::File { setting: setting.key(), path: path.into() };
        file.read()?;
        Ok(Some(file))
    }
}

impl Settings {
    /// Takes the user and the password, which may be that of a file ([`Password::FILE`]).
    ///
    /// # Errors
    /// As those of [`Password::choose`].
    pub fn take_credentials(&mut self) -> Result<(Option<String>, Option<Password>), Error> {
        let given = self.password.take();
        Ok((self.username.take(), Password::choose(self, given, &Password::FILE)?))
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("***"),
            Self::File { path, .. } => write!(f, "*** of {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::NamedTempFile, Password) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let path = file.path().to_owned();
        (file, Password::File { setting: "password_file", path })
    }

    #[test]
    fn a_file_is_read_anew_each_time_without_the_line_break_at_its_end() {
        let (file, password) = file("geheim\n");
        assert_eq!(password.read().unwrap(), "geheim");
        for (text, read) in [("neu", "neu"), ("mit leer \r\n", "mit leer "), (" x\n", " x")] {
            fs::write(&file, text).unwrap();
            assert_eq!(password.read().unwrap(), read);
        }
    }

    #[test]
    fn a_file_without_one_password_is_refused_by_its_path_and_not_by_what_it_holds() {
        for (text, why) in [("", "empty"), ("\n", "empty"), ("geheim\nuser\n", "2 lines")] {
            let (file, password) = file(text);
            let error = password.read().unwrap_err().to_string();
            let path = file.path().display().to_string();
            assert!(error.contains(why) && error.contains("password_file") && error.contains(&path), "{error}");
            assert!(!error.contains("geheim") && !format!("{password:?}").contains("geheim"), "{error}");
        }
        let missing = Password::File { setting: "password_file", path: "/nowhere/at/all".into() };
        assert!(missing.read().unwrap_err().to_string().contains("/nowhere/at/all"));
    }

    #[test]
    fn a_password_is_given_once() {
        let (file, _) = file("geheim");
        let mut settings = Settings::new("redis");
        settings.password = Some("other".to_owned());
        settings.values.insert("password_file".to_owned(), file.path().display().to_string());
        let error = settings.clone().take_credentials().unwrap_err().to_string();
        assert!(error.contains("password_file") && !error.contains("other"), "{error}");
        settings.password = None;
        assert_eq!(settings.take_credentials().unwrap().1.unwrap().read().unwrap(), "geheim");
        settings.finish().unwrap();
        assert_eq!(format!("{:?}", Password::from("geheim")), "***");
    }
}
