import { AppError, StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { isDeeper, jsonErrorPosition } from '../../base/json.ts'
import type { Logger } from '../../base/logger.ts'
import type { DefaultPolicyStatus } from '../agent-status.ts'
import type { KeptValues } from '../kept-values.ts'
import { isJsonObject, type JsonObject } from '../tunnel.ts'
import { type FileReading, WatchedFile } from '../watched-file.ts'
import type { PolicyCheck } from './policy-check.ts'
import { shippedPolicy } from './shipped-policy.ts'

const MAX_BYTES = 65_536
/** More than any policy needs. Same limit as in the API. */
const MAX_DEPTH = 32

export interface DefaultPolicyOptions {
  readonly path: string
  readonly kept: KeptValues
  readonly check: PolicyCheck
  readonly everyMs: number
  readonly clock: Clock
  readonly log: Logger
}

type Parsed = { readonly document: JsonObject } | { readonly problem: string }

/** Policy of tunnels without their own policy, and its last valid copy. */
export class DefaultPolicy {
  readonly #options: DefaultPolicyOptions
  readonly #file: WatchedFile
  #current: JsonObject = {}
  #status: DefaultPolicyStatus

  constructor(options: DefaultPolicyOptions) {
    const { path, everyMs, clock } = options
    this.#options = options
    this.#file = new WatchedFile({ paths: [path], maxBytes: MAX_BYTES, everyMs, clock })
    this.#status = { source: 'file', loadedAt: clock.now() }
  }

  get current(): JsonObject {
    return this.#current
  }

  get status(): DefaultPolicyStatus {
    return this.#status
  }

  /**
   * Loads the file, or the last valid copy if the file is invalid. Without either, throws a StartError,
   * because no tunnel may be opened unprotected. `onChange` is called when another policy comes into force.
   */
  async start(onChange: () => void): Promise<void> {
    const parsed = await this.#parse(this.#file.read())
    if ('document' in parsed) this.#adopt(parsed.document)
    else await this.#fallBack(parsed.problem)
    this.#file.start((reading) => this.#follow(reading, onChange))
  }

  stop(): void {
    this.#file.stop()
  }

  async #follow(reading: FileReading, onChange: () => void): Promise<void> {
    try {
      if (this.#reload(await this.#parse(reading))) onChange()
    } catch (error) {
      this.#options.log.error({ err: error }, 'cannot reload the default policy')
    }
  }

  /** Returns whether another policy is in force now. */
  #reload(parsed: Parsed): boolean {
    const { log } = this.#options
    if ('problem' in parsed) {
      log.error(
        { problem: parsed.problem },
        'default policy is invalid, the previous policy stays in use',
      )
      this.#status = { ...this.#status, source: 'kept', problem: parsed.problem }
      return false
    }
    const isOther = JSON.stringify(parsed.document) !== JSON.stringify(this.#current)
    this.#adopt(parsed.document)
    log.info({ isOther }, 'default policy reloaded')
    return isOther
  }

  #adopt(document: JsonObject): void {
    const { clock, kept, log } = this.#options
    this.#current = document
    this.#status = { source: 'file', loadedAt: clock.now() }
    try {
      kept.set('default-policy', JSON.stringify(document))
    } catch (error) {
      log.warn({ err: error }, 'cannot save a copy of the default policy')
    }
  }

  async #fallBack(problem: string): Promise<void> {
    const { clock, kept, log, path } = this.#options
    const copy = await this.#parse({ path, text: kept.get('default-policy') })
    if ('problem' in copy) throw new StartError(problem)
    log.error({ problem }, 'default policy is invalid, using the last valid copy')
    this.#current = copy.document
    this.#status = { source: 'kept', loadedAt: clock.now(), problem }
  }

  /** Returns the document, or one sentence that names the file and the position of the error. */
  async #parse({ text, problem }: FileReading): Promise<Parsed> {
    const { path, check, kept } = this.#options
    if (problem) return { problem: `Cannot read the default policy ${path}: ${problem}.` }
    if (text === undefined) return { problem: `The default policy ${path} does not exist.` }
    const mistake = jsonErrorPosition(text)
    if (mistake) {
      const { line, column } = mistake
      const place = `line ${line}, column ${column}`
      return { problem: `The default policy ${path} is not valid JSON: ${place}.` }
    }
    const document: unknown = JSON.parse(text)
    if (!isJsonObject(document)) {
      return { problem: `The default policy ${path} must be a JSON object: line 1, column 1.` }
    }
    if (isDeeper(document, MAX_DEPTH)) {
      return { problem: `The default policy ${path} has more than ${MAX_DEPTH} levels of nesting.` }
    }
    // A policy that was checked before, or was installed with this package, needs no check that delays the
    // start.
    const good = [kept.get('default-policy'), shippedPolicy()]
    if (good.includes(JSON.stringify(document))) return { document }
    const checked = await check(document).catch(unchecked)
    if (!Array.isArray(checked))
      return { problem: `The default policy ${path} is not in use: ${checked.detail}` }
    const [first, ...others] = checked
    if (!first) return { document }
    const flaw = `${first.pointer} ${first.detail}`.trimStart()
    const more = `and ${others.length} more: run device-agent policy check ${path}`
    const flaws = others.length === 0 ? flaw : `${flaw.replace(/\.$/, '')}, ${more}.`
    return { problem: `The default policy ${path} is invalid: ${flaws}` }
  }
}

/**
 * Returns a timeout of the check as a problem. On a busy device, the start thus continues with the last valid
 * copy.
 */
function unchecked(error: unknown): { readonly detail: string } {
  if (error instanceof AppError && error.code === 'policy-not-checked') {
    return { detail: error.message }
  }
  throw error
}
