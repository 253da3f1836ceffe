import { loginCookieName, setLoginCookie } from '../exchange/login-cookie.ts'
import { LoginError } from './login-error.ts'
import type { Sealer } from './sealer.ts'
import { type LoginSession, readSession, sessionText } from './session.ts'

const PURPOSE = 'session'
/** Browsers keep 4,096 bytes of a cookie with its name and its attributes. */
const MAX_VALUE = 3_800
const MAX_PARTS = 5

/** Whose cookies they are. */
export interface CookieOwner {
  /** Different for log-ins that do not share their sessions. */
  readonly tag: string
  readonly isSecure: boolean
  readonly sealer: Sealer
}

/** A session in the cookies of a request; undefined when there is none, or none that is ours. */
export function sessionIn(
  cookie: (name: string) => string | undefined,
  { sealer, ...owner }: CookieOwner,
): LoginSession | undefined {
  const sealed = valuesIn(cookie, owner).join('')
  const text = sealed === '' ? undefined : sealer.open(sealed, PURPOSE)
  return text === undefined ? undefined : readSession(text)
}

/** Characters of the session in the cookies of a request. */
export function sessionLength(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
): number {
  return valuesIn(cookie, owner).reduce((sum, { length }) => sum + length, 0)
}

/** Set-Cookie values. Throws LoginError for a session that is too large. */
export function sessionCookies(
  session: LoginSession,
  maxAgeS: number,
  cookie: (name: string) => string | undefined,
  { sealer, ...owner }: CookieOwner,
): string[] {
  const sealed = sealer.seal(sessionText(session), PURPOSE)
  const parts = sealed.match(new RegExp(`.{1,${MAX_VALUE}}`, 'g')) ?? []
  if (parts.length > MAX_PARTS) throw new LoginError('session-too-large')
  const { isSecure } = owner
  const kept = parts.map((part, index) =>
    setLoginCookie(partName(owner, index), part, { maxAgeS, isSecure }),
  )
  return [...kept, ...forgetSession(cookie, owner, parts.length)]
}

/** Set-Cookie values that take away what the browser has of a session, from a part on. */
export function forgetSession(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
  from = 0,
): string[] {
  const names = Array.from({ length: MAX_PARTS }, (_, index) => partName(owner, index)).slice(from)
  const { isSecure } = owner
  return names
    .filter((name) => cookie(name) !== undefined)
    .map((name) => setLoginCookie(name, '', { maxAgeS: 0, isSecure }))
}

function valuesIn(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
): string[] {
  const values: string[] = []
  for (let index = 0; index < MAX_PARTS; index += 1) {
    const value = cookie(partName(owner, index))
    if (value === undefined) break
    values.push(value)
  }
  return values
}

function partName({ tag, isSecure }: Omit<CookieOwner, 'sealer'>, index: number): string {
  const name = loginCookieName('session', tag, isSecure)
  return index === 0 ? name : `${name}.${index}`
}
