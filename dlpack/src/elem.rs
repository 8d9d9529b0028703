//! Element types, as DLPack writes them.

use crate::error::DlpackError;
use dlpark::ffi::{DLDataType, DLDataTypeCode};
use trunnion_runtime_core::elem::ElemType;

/// DLPack's type of an element.
pub(crate) fn to_data_type(elem: ElemType) -> Result<DLDataType, DlpackError> {
    use ElemType::*;
    let code = match elem {
        F64 | F32 | F16 => DLDataTypeCode::FLOAT,
        BF16 => DLDataTypeCode::BFLOAT,
        I64 | I32 | I16 | I8 => DLDataTypeCode::INT,
        U64 | U32 | U16 | U8 => DLDataTypeCode::UINT,
        // A type that is younger than this crate.
        _ => return Err(DlpackError::Elem { code: u8::MAX, bits: bits(elem), lanes: 1 }),
    };
    Ok(DLDataType::new(code, bits(elem), 1))
}

/// The element type that DLPack's is. Truth values are taken as what they are stored as, bytes.
pub(crate) fn from_data_type(data_type: DLDataType) -> Result<ElemType, DlpackError> {
    let is_same = |elem: &ElemType| to_data_type(*elem).is_ok_and(|own| own.matches(data_type));
    let bool = DLDataType::new(DLDataTypeCode::BOOL, 8, 1);
    match ElemType::ALL.into_iter().find(is_same) {
        Some(elem) => Ok(elem),
        None if bool.matches(data_type) => Ok(ElemType::U8),
        None => Err(DlpackError::Elem { code: data_type.code.0, bits: data_type.bits, lanes: data_type.lanes }),
    }
}

fn bits(elem: ElemType) -> u8 {
    (elem.size() * 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_is_one_of_dlpacks_and_back() {
        for elem in ElemType::ALL {
            let data_type = to_data_type(elem).unwrap();
            assert_eq!(u64::from(data_type.bits), elem.size() * 8);
            assert_eq!(from_data_type(data_type).unwrap(), elem);
        }
        assert_eq!(from_data_type(DLDataType::new(DLDataTypeCode::BOOL, 8, 1)).unwrap(), ElemType::U8);
    }

    #[test]
    fn types_that_no_device_has_are_named() {
        for (code, bits, lanes) in [
            (DLDataTypeCode::COMPLEX, 64, 1),
            (DLDataTypeCode::FLOAT, 32, 4),
            (DLDataTypeCode::FLOAT8_E5M2, 8, 1),
            (DLDataTypeCode::INT, 4, 1),
            (DLDataTypeCode::OPAQUEHANDLE, 64, 1),
        ] {
            let error = from_data_type(DLDataType::new(code, bits, lanes)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("code {} with {bits} bits", code.0)) && text.contains("BF16"), "{text}");
        }
    }
}
