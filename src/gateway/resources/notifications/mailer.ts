import type { SmtpServer } from '../../../settings/smtp-url.ts'
import { type Attempt, NOT_SENT } from './attempt.ts'
import { shortText } from './notice.ts'

const DNS_MS = 10_000
/** Time until the greeting of the mail server, in milliseconds. Some servers delay it against spam. */
const GREETING_MS = 60_000
/** Time for an answer. RFC 5321 section 4.5.3.2 allows minutes, above all after the data. */
const ANSWER_MS = 300_000
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
    // The server has all data of the mail.
    let isComplete = false
    // Loaded by the first mail.
    const { createTransport } = await import('nodemailer')
    const transport = createTransport({
      host,
      port,
      secure: tls === 'implicit',
      ...(tls === 'off' ? { ignoreTLS: true } : { requireTLS: true }),
      tls: { minVersion: 'TLSv1.2', rejectUnauthorized: true, ...(this.#ca && { ca: this.#ca }) },
      ...(user !== undefined && { auth: { user, pass: password?.reveal() ?? '' } }),
      // Also the limit of the greeting.
      connectionTimeout: GREETING_MS,
      greetingTimeout: GREETING_MS,
      socketTimeout: ANSWER_MS,
      dnsTimeout: DNS_MS,
      logger: { info: (entry: LogEntry) => (isComplete ||= entry.inByteCount !== undefined) },
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
      const failure = error as SmtpFailure
      const isUnclear = isComplete && !failure.response
      return { ...NOT_SENT, isUnclear, ...this.#failure(failure) }
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

/** The library logs the size of a mail after its last byte. */
interface LogEntry {
  readonly inByteCount?: number
}

interface SmtpFailure extends Error {
  readonly code?: string
  /** Answer of the server. */
  readonly response?: string
  readonly responseCode?: number
}

const statusOf = (response = '') => Number(/^\d{3}/.exec(response)?.[0]) || null
