//! Private keys under a password: PKCS #8's `EncryptedPrivateKeyInfo` (RFC 5958) with PBES2 (RFC
//! 8018), which is what OpenSSL writes: PBKDF2 makes a key of the password, and AES-CBC encrypts.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2::{
    self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA384, PBKDF2_HMAC_SHA512,
};

use crate::der::{DerReader, OBJECT, OCTET_STRING, SEQUENCE};

/// The `PrivateKeyInfo` that is encrypted in these bytes. The error is for people.
pub(crate) fn decrypt(der: &[u8], password: &[u8]) -> Result<Vec<u8>, String> {
    let parts = Parts::read(der).ok_or("this form of encrypted key is not known")?;
    let (scheme, key_len) = match parts.cipher {
        AES_128_CBC => (&AES_128, 16),
        AES_256_CBC => (&AES_256, 32),
        _ => return Err("only AES-128-CBC and AES-256-CBC are known for encrypted keys".to_owned()),
    };
    let function = match parts.function {
        None | Some(HMAC_SHA1) => PBKDF2_HMAC_SHA1,
        Some(HMAC_SHA256) => PBKDF2_HMAC_SHA256,
        Some(HMAC_SHA384) => PBKDF2_HMAC_SHA384,
        Some(HMAC_SHA512) => PBKDF2_HMAC_SHA512,
        Some(_) => return Err("the password's hash function is not known".to_owned()),
    };
    let mut key = vec![0; key_len];
    pbkdf2::derive(function, parts.rounds, parts.salt, password, &mut key);
    // A wrong password shows as padding that makes no sense.
    let wrong = |_| "the password is wrong".to_owned();
    let key = UnboundCipherKey::new(scheme, &key).map_err(wrong)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(wrong)?;
    let mut bytes = parts.encrypted.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(parts.iv));
    let plain = key.decrypt(&mut bytes, context).map_err(wrong)?;
    if DerReader::new(plain).enter(SEQUENCE).is_none() {
        return Err("the password is wrong".to_owned());
    }
    Ok(plain.to_vec())
}

struct Parts<'a> {
    salt: &'a [u8],
    rounds: NonZeroU32,
    /// The hash function of PBKDF2, where it is named.
    function: Option<&'a [u8]>,
    cipher: &'a [u8],
    iv: [u8; 16],
    encrypted: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let mut info = DerReader::new(der).enter(SEQUENCE)?;
        let mut algorithm = info.enter(SEQUENCE)?;
        if algorithm.take(OBJECT)? != PBES2 {
            return None;
        }
        let mut parameters = algorithm.enter(SEQUENCE)?;
        let mut derivation = parameters.enter(SEQUENCE)?;
        if derivation.take(OBJECT)? != PBKDF2 {
            return None;
        }
        let mut derivation = derivation.enter(SEQUENCE)?;
        let salt = derivation.take(OCTET_STRING)?;
        let rounds = derivation.number().filter(|rounds| *rounds <= ROUNDS_MAX)?;
        let _key_length = derivation.number();
        let function = derivation.enter(SEQUENCE).and_then(|mut function| function.take(OBJECT));
        let mut encryption = parameters.enter(SEQUENCE)?;
        Some(Self {
            salt,
            rounds: NonZeroU32::new(u32::try_from(rounds).ok()?)?,
            function,
            cipher: encryption.take(OBJECT)?,
            iv: encryption.take(OCTET_STRING)?.try_into().ok()?,
            encrypted: info.take(OCTET_STRING)?,
        })
    }
}

/// More rounds would only keep the server from starting.
const ROUNDS_MAX: u64 = 50_000_000;
/// 1.2.840.113549.1.5.13
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
/// 1.2.840.113549.1.5.12
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
/// 1.2.840.113549.2.7 and the next ones.
const HMAC_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 7];
const HMAC_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 9];
const HMAC_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 10];
const HMAC_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 11];
/// 2.16.840.1.101.3.4.1.2
const AES_128_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 2];
/// 2.16.840.1.101.3.4.1.42
const AES_256_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 42];
