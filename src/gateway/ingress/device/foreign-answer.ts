import type { HeadScanner } from '../http1/head-scanner.ts'
import { HttpSyntaxError } from '../http1/http-syntax-error.ts'
import { beginsLikeHttp1, parseResponseHead } from '../http1/response-head.ts'
import { isDialFailure, mayBeDialFailure, resemblesDialFailure } from './dial-failure.ts'

/**
 * What comes where HTTP/2 was due: the SDK says in HTTP/1.1 that it finds no service, a service that
 * speaks no HTTP/2 says whatever it likes.
 */
export class ForeignAnswer {
  readonly #scanner: HeadScanner
  readonly #method: string
  #body: Buffer | undefined

  /** Not in the middle of a head. */
  constructor(scanner: HeadScanner, method: string) {
    this.#scanner = scanner
    this.#method = method
  }

  /** What it is; undefined while that cannot be told. */
  read(chunk: Buffer): 'unreachable' | 'invalid' | undefined {
    try {
      return this.#read(chunk)
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      return 'invalid'
    }
  }

  #read(chunk: Buffer): 'unreachable' | 'invalid' | undefined {
    let body = chunk
    if (!this.#body) {
      if (this.#scanner.heldBytes === 0 && !beginsLikeHttp1(chunk)) return 'invalid'
      const end = this.#scanner.scan(chunk, 0)
      if (end === -1) return undefined
      const head = parseResponseHead(this.#scanner.take(), this.#method)
      if (!resemblesDialFailure(head)) return 'invalid'
      this.#body = Buffer.alloc(0)
      body = chunk.subarray(end)
    }
    this.#body = Buffer.concat([this.#body, body])
    if (isDialFailure(this.#body, this.#method)) return 'unreachable'
    return mayBeDialFailure(this.#body) ? undefined : 'invalid'
  }
}
