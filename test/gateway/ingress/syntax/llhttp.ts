import { createRequire } from 'node:module'

/** One message as a parser understood it. Field values are without blanks around them. */
export interface ParsedMessage {
  /** `GET /path` or `200`. */
  readonly line: string
  readonly minorVersion: number
  /** Name and value in turn, trailers behind. */
  readonly fields: readonly string[]
  readonly body: string
}

export interface ParsedBytes {
  /** The messages that are complete, in order. */
  readonly messages: ParsedMessage[]
  /** What stopped the parser; undefined when it only wants more bytes. */
  readonly error: string | undefined
}

/** The part of the WebAssembly API that is used here; the types of Node 20 do not have it. */
interface WasmApi {
  readonly Module: new (bytes: Buffer) => object
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown }
}

interface LlhttpExports {
  readonly memory: { readonly buffer: ArrayBuffer }
  _initialize(): void
  malloc(bytes: number): number
  free(pointer: number): void
  llhttp_alloc(type: number): number
  llhttp_free(parser: number): void
  llhttp_execute(parser: number, pointer: number, bytes: number): number
  llhttp_finish(parser: number): number
  llhttp_get_error_reason(parser: number): number
  llhttp_get_method(parser: number): number
  llhttp_get_status_code(parser: number): number
  llhttp_get_http_minor(parser: number): number
  llhttp_get_upgrade(parser: number): number
  llhttp_method_name(method: number): number
}

interface Draft {
  target: string
  line: string
  minorVersion: number
  readonly names: string[]
  readonly values: string[]
  body: string
}

const REQUEST = 1
const RESPONSE = 2
/** What llhttp answers when it stops in front of the bytes of another protocol. */
const PAUSED_UPGRADE = 22

/** llhttp as undici carries it, strict, asked for whole messages. */
export class Llhttp {
  readonly #wasm: LlhttpExports
  #draft: Draft = newDraft()
  #messages: ParsedMessage[] = []
  #isInValue = false
  #isRequest = true

  constructor() {
    const bytes: Buffer = createRequire(import.meta.url)('undici/lib/llhttp/llhttp-wasm.js')
    const text = (pointer: number, length: number) =>
      Buffer.from(this.#wasm.memory.buffer, pointer, length).toString('latin1')
    const env = {
      wasm_on_message_begin: () => this.#begin(),
      wasm_on_url: (_: number, at: number, length: number) => this.#onTarget(text(at, length)),
      wasm_on_status: () => 0,
      wasm_on_header_field: (_: number, at: number, length: number) =>
        this.#onName(text(at, length)),
      wasm_on_header_value: (_: number, at: number, length: number) =>
        this.#onValue(text(at, length)),
      wasm_on_headers_complete: (parser: number) => this.#onHead(parser),
      wasm_on_body: (_: number, at: number, length: number) => this.#onBody(text(at, length)),
      wasm_on_message_complete: () => this.#onComplete(),
    }
    const { Module, Instance } = (globalThis as unknown as { WebAssembly: WasmApi }).WebAssembly
    this.#wasm = new Instance(new Module(bytes), { env }).exports as LlhttpExports
    this.#wasm._initialize()
  }

  parseRequests(bytes: Buffer): ParsedBytes {
    return this.#parse(REQUEST, bytes)
  }

  parseResponses(bytes: Buffer): ParsedBytes {
    return this.#parse(RESPONSE, bytes)
  }

  #parse(type: number, bytes: Buffer): ParsedBytes {
    this.#messages = []
    this.#isRequest = type === REQUEST
    const parser = this.#wasm.llhttp_alloc(type)
    const pointer = this.#wasm.malloc(bytes.length)
    new Uint8Array(this.#wasm.memory.buffer, pointer, bytes.length).set(bytes)
    const code = this.#wasm.llhttp_execute(parser, pointer, bytes.length)
    const error = code === 0 || code === PAUSED_UPGRADE ? undefined : this.#reason(parser)
    if (error === undefined) this.#wasm.llhttp_finish(parser)
    this.#wasm.free(pointer)
    this.#wasm.llhttp_free(parser)
    return { messages: this.#messages, error }
  }

  #begin(): number {
    this.#draft = newDraft()
    this.#isInValue = false
    return 0
  }

  #onTarget(text: string): number {
    this.#draft.target += text
    return 0
  }

  #onName(text: string): number {
    const { names } = this.#draft
    if (this.#isInValue || names.length === 0) names.push(text)
    else names[names.length - 1] += text
    this.#isInValue = false
    return 0
  }

  #onValue(text: string): number {
    const { values } = this.#draft
    if (this.#isInValue) values[values.length - 1] += text
    else values.push(text)
    this.#isInValue = true
    return 0
  }

  #onHead(parser: number): number {
    const wasm = this.#wasm
    this.#draft.minorVersion = wasm.llhttp_get_http_minor(parser)
    this.#draft.line = this.#isRequest
      ? `${this.#cString(wasm.llhttp_method_name(wasm.llhttp_get_method(parser)))} ${this.#draft.target}`
      : String(wasm.llhttp_get_status_code(parser))
    return 0
  }

  #onBody(text: string): number {
    this.#draft.body += text
    return 0
  }

  #onComplete(): number {
    const { line, minorVersion, names, values, body } = this.#draft
    const fields = names.flatMap((name, at) => [name, trimBlanks(values[at] ?? '')])
    this.#messages.push({ line, minorVersion, fields, body })
    return 0
  }

  #reason(parser: number): string {
    return this.#cString(this.#wasm.llhttp_get_error_reason(parser)) || 'unknown'
  }

  #cString(pointer: number): string {
    const memory = Buffer.from(this.#wasm.memory.buffer)
    return memory.toString('latin1', pointer, memory.indexOf(0, pointer))
  }
}

function newDraft(): Draft {
  return { target: '', line: '', minorVersion: 0, names: [], values: [], body: '' }
}

export function trimBlanks(text: string): string {
  return text.replace(/^[ \t]+|[ \t]+$/g, '')
}
