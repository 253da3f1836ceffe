import { isLoopback } from '../base/listen-address.ts'
import { Secret } from '../base/secret.ts'
import { Problem, secretForm } from './forms.ts'

/** A mail server and its user. */
export interface SmtpServer {
  readonly host: string
  readonly port: number
  /** Certificates are always verified. `off` is for a server on the same machine. */
  readonly tls: 'implicit' | 'starttls' | 'off'
  readonly user: string | undefined
  readonly password: Secret | undefined
}

const PORTS: Readonly<Record<string, number>> = { 'smtp:': 587, 'smtps:': 465 }
const FORM = 'must be smtp://user:password@host:587 or smtps://user:password@host:465'

/** Reads the URL of a mail server. No problem repeats the text, because it may contain a password. */
export const smtpUrl = secretForm((text): SmtpServer | Problem => {
  const server = parseSmtpUrl(text)
  return typeof server === 'string' ? new Problem(server) : server
})

/** The server, or the problem of the text as the end of a sentence. */
function parseSmtpUrl(text: string): SmtpServer | string {
  if (!/^smtps?:\/\//.test(text)) return FORM
  if (!URL.canParse(text)) return `${FORM}, with @ : / ? # in a password as %40 %3A %2F %3F %23`
  const url = new URL(text)
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
  if (host === '' || !/^\/?$/.test(url.pathname) || url.hash !== '') return FORM
  const [user, password] = [decoded(url.username), decoded(url.password)]
  if (user === undefined || password === undefined)
    return 'has a % without two hex digits: write a literal % as %25'
  if ((user === '') !== (password === '')) return `${FORM}: user and password belong together`
  const isOff = url.search === '?tls=off'
  if (url.search !== '' && !isOff) return 'has an unknown parameter (known: tls=off)'
  if (isOff && (url.protocol === 'smtps:' || !isLoopback(host)))
    return 'may have tls=off only for smtp:// and a server on this machine, such as smtp://127.0.0.1:25?tls=off'
  return {
    host,
    port: url.port === '' ? (PORTS[url.protocol] ?? 0) : Number(url.port),
    tls: isOff ? 'off' : url.protocol === 'smtps:' ? 'implicit' : 'starttls',
    user: user === '' ? undefined : user,
    password: password === '' ? undefined : new Secret(password),
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
