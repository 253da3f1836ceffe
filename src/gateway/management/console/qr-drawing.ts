import { toString as draw } from 'qrcode'

/** A text as a QR code, in SVG. */
export function drawQrCode(text: string): Promise<string> {
  return draw(text, { type: 'svg', margin: 2, errorCorrectionLevel: 'M' })
}
