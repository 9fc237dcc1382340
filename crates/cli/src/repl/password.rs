//! A password, asked for on the terminal.

use std::io;

use bobbin_client::error_text;

use crate::{
    keyboard::{KeyPress, Keyboard, Raw},
    terminal,
};

/// Asks for a password, showing stars. What comes behind it is left to be read.
pub fn ask_password(prompt: &str) -> Result<Vec<u8>, String> {
    if !terminal::is_typed() {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|error| error_text(&error))?;
        return Ok(line.trim_end_matches(['\r', '\n']).as_bytes().to_vec());
    }
    let raw = Raw::enter(io::stdin()).map_err(|error| error_text(&error))?;
    out!("{prompt}");
    let password = read_password(&mut Keyboard::new(io::stdin()));
    drop(raw);
    out!("\n");
    password
}

fn read_password(keyboard: &mut Keyboard<io::Stdin>) -> Result<Vec<u8>, String> {
    // As keys, each of which Backspace may take back.
    let mut keys: Vec<Vec<u8>> = Vec::new();
    loop {
        let key = keyboard.key().map_err(|error| error_text(&error))?;
        let erased = match key.ok_or("There is no more input.")? {
            KeyPress::Enter => return Ok(keys.concat()),
            KeyPress::Interrupt => return Err("Interrupted".into()),
            KeyPress::Char(character) => {
                keys.push(character.to_string().into_bytes());
                out!("*");
                0
            }
            KeyPress::Byte(byte) => {
                keys.push(vec![byte]);
                out!("*");
                0
            }
            KeyPress::Backspace => usize::from(keys.pop().is_some()),
            KeyPress::EraseLine => keys.drain(..).count(),
            _ => 0,
        };
        terminal::write("\x08 \x08".repeat(erased).as_bytes());
    }
}
