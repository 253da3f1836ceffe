import type { SmtpServer } from '../../../settings/smtp-url.ts'
import { type Attempt, NOT_SENT } from './attempt.ts'
import { shortText } from './notice.ts'

/** Time for each step of a conversation with the mail server, in milliseconds. */
const STEP_MS = 10_000
const MAX_ANSWER = 300

export interface MailSettings {
  readonly server: SmtpServer
  /** Address of the sender. */
  readonly from: string
}

export interface Mail {
  readonly to: readonly string[]
  readonly subject: string
  readonly text: string
  /** The same for each attempt, so that mail servers recognize repetitions. */
  readonly id: string
}

/** Sends plain text mails over SMTP. Each mail has a connection of its own. */
export class Mailer {
  readonly #settings: MailSettings
  readonly #ca: string | undefined

  /** `ca`: PEM of an authority, instead of the trusted authorities of Node. */
  constructor(settings: MailSettings, { ca }: { readonly ca?: string | undefined } = {}) {
    this.#settings = settings
    this.#ca = ca
  }

  /** Never throws. An abort of the signal ends the conversation. */
  async send({ to, subject, text, id }: Mail, signal: AbortSignal): Promise<Attempt> {
    const { from, server } = this.#settings
    const { host, port, tls, user, password } = server
    // Loaded by the first mail.
    const { createTransport } = await import('nodemailer')
    const transport = createTransport({
      host,
      port,
      secure: tls === 'implicit',
      ...(tls === 'off' ? { ignoreTLS: true } : { requireTLS: true }),
      tls: { minVersion: 'TLSv1.2', rejectUnauthorized: true, ...(this.#ca && { ca: this.#ca }) },
      ...(user !== undefined && { auth: { user, pass: password?.reveal() ?? '' } }),
      connectionTimeout: STEP_MS,
      greetingTimeout: STEP_MS,
      socketTimeout: STEP_MS,
      dnsTimeout: STEP_MS,
      maxResponseSize: 65_536,
      allowInternalNetworkInterfaces: true,
      disableFileAccess: true,
      disableUrlAccess: true,
    })
    try {
      const { rejected = [], response } = await transport.sendMail({
        from,
        to: [...to],
        subject,
        text,
        messageId: `<${id}@${from.slice(from.lastIndexOf('@') + 1)}>`,
        // Answering machines do not answer (RFC 3834).
        headers: { 'Auto-Submitted': 'auto-generated' },
        signal,
      })
      const refused = rejected.length > 0 ? ` Not accepted for ${rejected.join(', ')}.` : ''
      return { isTaken: true, status: statusOf(response), text: `Delivered.${refused}` }
    } catch (error) {
      return { ...NOT_SENT, ...this.#failure(error as SmtpFailure) }
    } finally {
      transport.close()
    }
  }

  #failure({ response, responseCode, message, code }: SmtpFailure): Partial<Attempt> {
    const { host, port, password } = this.#settings.server
    const server = `The mail server ${host}:${port}`
    const shown = (text: string) => {
      const line = shortText(password?.scrub(text) ?? text, MAX_ANSWER)
      return /[.!?]$/.test(line) ? line : `${line}.`
    }
    if (response) {
      const status = responseCode ?? null
      return { status, text: `${server} answered: ${shown(response)}` }
    }
    if (code === 'ETIMEDOUT' || code === 'EABORT')
      return { text: `${server} did not answer in time. Check GATEWAY_SMTP_URL and firewalls.` }
    return { text: `${server} did not take the mail: ${shown(message)}` }
  }
}

interface SmtpFailure extends Error {
  readonly code?: string
  /** Answer of the server. */
  readonly response?: string
  readonly responseCode?: number
}

const statusOf = (response = '') => Number(/^\d{3}/.exec(response)?.[0]) || null
