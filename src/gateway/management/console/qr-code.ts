import { Router } from 'express'
import * as z from 'zod'
import { jsonBody } from '../../../http/json-body.ts'
import { parseBody } from '../body.ts'

/** Twice the longest token, and still a code that a phone reads off a screen. */
const MAX_TEXT = 128

const QrCodeCreate = z.strictObject({ text: z.string().min(1).max(MAX_TEXT) })

/** `POST /qr_codes`: a text as a QR code, in SVG. Posted, because what is in a URL gets logged. */
export function qrCodeRoutes(): Router {
  const router = Router()
  router.post('/qr_codes', jsonBody, async (request, response) => {
    const { text } = parseBody(QrCodeCreate, request.body)
    // An own module: one that is in CommonJS has no names of its own where it is bundled.
    const { drawQrCode } = await import('./qr-drawing.ts')
    const svg = await drawQrCode(text)
    response.status(201).type('image/svg+xml').send(svg)
  })
  return router
}
