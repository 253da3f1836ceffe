import { toString as drawQrCode } from 'qrcode'

/**
 * A text as a QR code of characters. With colours it is black on white in every terminal theme, because some
 * cameras read nothing else.
 */
export function qrText(text: string, isColoured: boolean): Promise<string> {
  return isColoured
    ? drawQrCode(text, { type: 'terminal', small: true, errorCorrectionLevel: 'L' })
    : drawQrCode(text, { type: 'utf8', errorCorrectionLevel: 'L' })
}
