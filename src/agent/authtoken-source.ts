import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import { JOIN, JOIN_AGAIN, JOIN_OR_HOSTED, type Problem, type ShownProblem } from './problem.ts'
import { isTokenRefused } from './service-error.ts'
import { type FileReading, WatchedFile } from './watched-file.ts'

const MAX_BYTES = 4_096
/** Form of an authtoken. Other text may be a file that is still being written. */
const TOKEN = /^[\x21-\x7e]+$/

/** File of the installed service. systemd copies it when the service starts. */
const LASTING = '/etc/credstore/svc-authtoken'
/** The same file, also below another root. */
export const CREDENTIAL = /\/credstore\/svc-authtoken$/
/** The copy that the running service gets. It is read-only, and ends with the service. */
export const PASSED_AUTHTOKEN = '/run/credentials/device-agent.service/svc-authtoken'

/** Whether the text has the form of an authtoken. Only the service knows whether it is valid. */
export function isAuthtoken(text: string): boolean {
  return TOKEN.test(text)
}

export interface AuthtokenSourceOptions {
  /** In order of precedence. */
  readonly files: readonly string[]
  /** From the environment. Used if no file contains a token. */
  readonly value: Secret | undefined
  readonly everyMs: number
  readonly clock: Clock
  readonly log: Logger
}

/** Source of the agent's authtoken. Changes of a token file are applied. */
export class AuthtokenSource {
  readonly #options: AuthtokenSourceOptions
  readonly #file: WatchedFile
  #current: Secret | Problem
  #flaw: string | undefined
  #path: string | undefined

  constructor(options: AuthtokenSourceOptions) {
    const { files, everyMs, clock } = options
    this.#options = options
    this.#file = new WatchedFile({ paths: files, maxBytes: MAX_BYTES, everyMs, clock })
    this.#current = authtokenLack(files[0], undefined)
  }

  /** The token, or the reason why it is missing. The object changes only with the token or the reason. */
  get current(): Secret | Problem {
    return this.#current
  }

  /** File of the current token. Undefined: from the environment. */
  get path(): string | undefined {
    return this.#path
  }

  /** Reason why the file is not used while an earlier token still is, with the remedy. */
  get problem(): string | undefined {
    return this.#current instanceof Secret ? this.#flaw : undefined
  }

  /** `onFlaw`: `problem` may have changed, but not the token. */
  start(onChange: () => void, onFlaw: () => void = () => {}): void {
    this.#apply(this.#file.read())
    this.#file.start((reading) => {
      if (this.#apply(reading)) onChange()
      else onFlaw()
    })
  }

  stop(): void {
    this.#file.stop()
  }

  /** Returns whether the token, or the reason why it is missing, has changed. */
  #apply({ path, text, problem }: FileReading): boolean {
    const { files, log, value } = this.#options
    const found = text?.trim() ?? ''
    const isToken = isAuthtoken(found)
    const flaw = problem ?? (text === undefined || isToken ? undefined : 'it contains no authtoken')
    if (flaw) log.warn({ path, problem: flaw }, 'cannot use the authtoken file')
    this.#flaw =
      flaw &&
      `cannot use the authtoken file, the previous authtoken is still in use: ${flaw}. Write an authtoken to ${path}`
    // A working token stays in use until a better one is found or its file is deleted.
    if (flaw && this.#current instanceof Secret) return false
    const next = isToken ? new Secret(found) : (value ?? authtokenLack(path ?? files[0], flaw))
    if (isSame(next, this.#current)) return false
    this.#current = next
    this.#path = next === value ? undefined : path
    const from = next === value ? 'environment' : path
    if (next instanceof Secret) log.info({ from }, 'authtoken loaded')
    return true
  }
}

function isSame(a: Secret | Problem, b: Secret | Problem): boolean {
  if (a instanceof Secret && b instanceof Secret) return a.reveal() === b.reveal()
  return !(a instanceof Secret) && !(b instanceof Secret) && a.detail === b.detail
}

/** The text is no authtoken, so the gateway may still have the right one. */
const MALFORMED = 'ERR_NGROK_105'

const OFFLINE = 'All tunnels are offline until then.'

/** Where an authtoken has to be written, and what follows. */
function placeOf(path: string) {
  const file = path === PASSED_AUTHTOKEN ? LASTING : path
  return CREDENTIAL.test(file)
    ? { file, reader: 'only by root', next: 'Then run sudo systemctl restart device-agent.' }
    : { file, reader: 'by the agent', next: 'No restart is needed.' }
}

/**
 * Returns a refused authtoken's problem with a remedy that names the place of the token. `isServing`: an
 * earlier session still serves.
 */
export function withTokenPlace<T extends ShownProblem>(
  problem: T,
  path: string | undefined,
  isServing = false,
): T {
  if (!isTokenRefused(problem.serviceCode)) return problem
  const place = path === undefined ? undefined : placeOf(path)
  const step = place
    ? `write a valid authtoken to ${place.file}. ${place.next}`
    : 'set SVC_AUTHTOKEN to a valid authtoken and restart the agent.'
  const effect = isServing ? 'The tunnels stay online while this connection lasts.' : OFFLINE
  const join = problem.serviceCode === MALFORMED ? JOIN_AGAIN : JOIN
  return { ...problem, remedy: `${join} Or ${step} ${effect}` }
}

/**
 * Returns the problem of a missing authtoken, also for the doctor. The agent watches a file. It reads other sources once,
 * so they need a restart.
 */
export function authtokenLack(path: string | undefined, flaw: string | undefined): Problem {
  const shared = { reason: 'auth', permanent: false } as const
  if (path === undefined) {
    return {
      ...shared,
      detail: 'no authtoken is set',
      remedy: `${JOIN_OR_HOSTED} With an authtoken at hand, run device-agent service install --token-stdin, or set SVC_AUTHTOKEN_FILE and restart the agent. ${OFFLINE}`,
    }
  }
  const { file, reader, next } = placeOf(path)
  return {
    ...shared,
    detail: flaw ? `cannot use the authtoken file: ${flaw}` : 'the authtoken file is missing',
    remedy: `Write an authtoken to ${file}, readable ${reader}. ${next} For a new authtoken: ${JOIN_AGAIN} ${OFFLINE}`,
  }
}
