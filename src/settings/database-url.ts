import { isAbsolute, resolve } from 'node:path'
import { isLoopback } from '../base/listen-address.ts'
import { nearest } from '../base/nearest.ts'
import { Secret } from '../base/secret.ts'
import { Problem, secretForm } from './forms.ts'

/** Address and user of a PostgreSQL server. */
export interface DatabaseAddress {
  /** A name, an address without brackets, or the absolute path of a folder with a Unix socket. */
  readonly host: string
  readonly port: number
  readonly database: string
  readonly user: string
  readonly password: Secret | undefined
  /** Certificates are checked against `caPath`, or Node's trusted CAs, and have to name the host. */
  readonly tls: 'off' | 'verify-full'
  /** Absolute path of a PEM file. */
  readonly caPath: string | undefined
}

const DEFAULT_PORT = 5_432
const PARAMETERS = ['host', 'sslmode', 'sslrootcert']
const FORM = 'must be postgres://user@host/database'
/** Modes of libpq that encrypt without authenticating the server. */
const BLIND_MODES = ['allow', 'prefer', 'require', 'verify-ca', 'no-verify']
/** A URL with a user and with the host only as a parameter, which the URL standard does not allow. */
const HOSTLESS = /^(postgres:\/\/[^/?#]*@)(?=\/)/
const NOWHERE = 'nowhere.invalid'

/** Reads the form of libpq; no problem repeats the text, because a password may stand in it. */
export const databaseUrl = secretForm((text): DatabaseAddress | Problem => {
  const address = parseDatabaseUrl(text)
  return typeof address === 'string' ? new Problem(address) : address
})

/** The address, or the problem of the text as the end of a sentence. */
function parseDatabaseUrl(text: string): DatabaseAddress | string {
  if (text.startsWith('postgresql://')) return `${FORM}: the scheme is postgres://`
  if (!text.startsWith('postgres://')) return FORM
  const complete = text.replace(HOSTLESS, `$1${NOWHERE}`)
  if (!URL.canParse(complete)) return `${FORM}, with @ : / ? # in a password as %40 %3A %2F %3F %23`
  const url = new URL(complete)
  if (url.hash !== '') return `${FORM}: write # in a password as %23`
  const parameters = parametersOf(url)
  if (typeof parameters === 'string') return parameters
  const named = decoded(url.hostname.replace(/^\[(.*)\]$/, '$1'))
  const host = parameters.get('host') ?? (named === NOWHERE ? '' : named)
  const user = decoded(url.username)
  const database = decoded(url.pathname.slice(1))
  const password = decoded(url.password)
  if (host === undefined || user === undefined || database === undefined || password === undefined)
    return 'has a % without two hex digits: write a literal % as %25'
  return (
    problemOf({ host, user, database, parameters }) ?? {
      ...{ host, user, database, ...tlsOf(host, parameters) },
      port: url.port === '' ? DEFAULT_PORT : Number(url.port),
      password: password === '' ? undefined : new Secret(password),
    }
  )
}

/** The parameters, or the problem of a repeated one. */
function parametersOf(url: URL): ReadonlyMap<string, string> | string {
  const parameters = new Map<string, string>()
  for (const [name, value] of url.searchParams) {
    if (!PARAMETERS.includes(name)) {
      const meant = nearest(name, PARAMETERS, 3)
      const hint = meant === undefined ? '' : `: did you mean ${meant}?`
      return `has an unknown parameter (known: ${PARAMETERS.join(', ')})${hint}`
    }
    if (parameters.has(name) || value === '') return `must have exactly one value for ${name}`
    parameters.set(name, value)
  }
  return parameters
}

interface UrlParts {
  readonly host: string
  readonly user: string
  readonly database: string
  readonly parameters: ReadonlyMap<string, string>
}

function problemOf({ host, user, database, parameters }: UrlParts): string | undefined {
  if (user === '') return `${FORM}: the user is missing`
  if (database === '' || database.includes('/')) return `${FORM}: the database name is missing`
  if (host === '') return `${FORM}: the host is missing`
  if (host.includes(',')) return 'must have exactly one host: the address of the primary server'
  const isSocket = isAbsolute(host)
  if (parameters.has('host') && !isSocket)
    return 'must have the host before the /, or the directory of a Unix socket in host='
  const mode = parameters.get('sslmode')
  if (mode !== undefined && BLIND_MODES.includes(mode))
    return `must not have sslmode=${mode}: it does not verify the server; use verify-full, with the CA file as sslrootcert`
  if (mode !== undefined && mode !== 'disable' && mode !== 'verify-full')
    return 'must have sslmode=verify-full or sslmode=disable'
  if (isSocket && mode === 'verify-full')
    return 'must not have sslmode=verify-full: Unix sockets do not use TLS'
  if (parameters.has('sslrootcert') && tlsOf(host, parameters).tls === 'off')
    return 'has sslrootcert but TLS is off: add sslmode=verify-full'
  return undefined
}

/** Traffic within this machine needs no TLS. */
function tlsOf(host: string, parameters: ReadonlyMap<string, string>) {
  const isLocal = isAbsolute(host) || isLoopback(host)
  const mode = parameters.get('sslmode') ?? (isLocal ? 'disable' : 'verify-full')
  const caPath = parameters.get('sslrootcert')
  return {
    tls: mode === 'verify-full' ? ('verify-full' as const) : ('off' as const),
    caPath: caPath === undefined ? undefined : resolve(caPath),
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
