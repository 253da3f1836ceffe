import { ask } from './api.js'
import { copyButton } from './copy-button.js'
import { openNotice } from './dialog.js'
import { element } from './element.js'

/**
 * Shows a token that nobody can ask for again, to be copied or taken by a camera.
 * @param {{ title: string, text: string, token: string, what: string, hasQrCode?: boolean }} options
 */
export async function showOnce({ title, text, token, what, hasQrCode = false }) {
  const code = hasQrCode && (await qrCode(token, what))
  await openNotice({
    title,
    action: 'I have copied it',
    content: [
      element('p', { class: 'dialog-text' }, text),
      element(
        'div',
        { class: 'secret' },
        element('code', { class: 'secret-text', tabindex: '0' }, token),
        copyButton(token, what),
      ),
      code,
    ],
  })
}

/** Returns a picture of a text that is also shown as text, or undefined if it cannot be drawn. */
export async function qrCode(token, what) {
  try {
    const svg = await ask('POST', 'api/qr_codes', { body: { text: token } })
    return element('img', {
      class: 'qr-code',
      src: `data:image/svg+xml,${encodeURIComponent(svg)}`,
      alt: `QR code of ${what}`,
      width: '200',
      height: '200',
    })
  } catch {
    return undefined
  }
}
