import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import type { OpenApiDocument } from '../../src/http/openapi.ts'

/** An answer as a client got it. */
export interface CheckedAnswer {
  readonly method: string
  /** May have a query. */
  readonly path: string
  readonly status: number
  readonly contentType: string | undefined
  readonly text: string
}

interface DescribedAnswer {
  readonly content?: Readonly<Record<string, { readonly schema: { readonly $ref: string } }>>
}
interface DescribedOperation {
  readonly responses: Readonly<Record<string, DescribedAnswer>>
}
type DescribedPath = Readonly<Record<string, DescribedOperation>>

/** Holds answers against an OpenAPI document. */
export class OpenApiCheck {
  readonly #paths: ReadonlyMap<string, DescribedPath>
  readonly #refusal: DescribedAnswer
  readonly #ajv: Ajv2020

  constructor(document: OpenApiDocument) {
    const paths: unknown = document.paths
    this.#paths = new Map(Object.entries(paths as Record<string, DescribedPath>))
    const [first] = [...this.#paths.values()].flatMap((operations) => Object.values(operations))
    if (!first?.responses.default) throw new Error('the document describes no refusal')
    this.#refusal = first.responses.default
    this.#ajv = new Ajv2020({
      allErrors: true,
      allowUnionTypes: true,
      formats: { 'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/ },
    })
    // The schemas stand in a document that has members of its own.
    this.#ajv.addVocabulary(Object.keys(document))
    this.#ajv.addSchema(document, 'api')
  }

  /** Throws when the document does not describe this answer. */
  check({ method, path, status, contentType = '', text }: CheckedAnswer): void {
    const shown = `${method} ${path} answered ${status}`
    if (method === 'OPTIONS' && status === 204 && text === '') return
    const answer = this.#described(method, path, status)
    if (!answer) throw new Error(`${shown}, which the document does not know`)
    if (method === 'HEAD') return
    if (!answer.content) {
      if (text !== '') throw new Error(`${shown} with a body: ${text}`)
      return
    }
    const media = answer.content[contentType.replace(/ *;.*/, '')]
    if (!media) throw new Error(`${shown} with content-type ${contentType}`)
    const validate = this.#validator(media.schema.$ref)
    if (!validate(contentType.startsWith('text/') ? text : JSON.parse(text))) {
      throw new Error(`${shown}: ${this.#ajv.errorsText(validate.errors)} in ${text}`)
    }
  }

  /** Compiles every schema of the document: throws for one that is none. */
  compileAll(document: OpenApiDocument): void {
    for (const name of Object.keys(document.components.schemas)) {
      this.#validator(`#/components/schemas/${name}`)
    }
  }

  #validator(ref: string): ValidateFunction {
    const validate = this.#ajv.getSchema(`api${ref}`)
    if (!validate) throw new Error(`the document has no ${ref}`)
    return validate
  }

  #described(method: string, path: string, status: number): DescribedAnswer | undefined {
    const operation = this.#operation(method === 'HEAD' ? 'get' : method.toLowerCase(), path)
    return operation?.responses[status] ?? (status >= 400 ? this.#refusal : undefined)
  }

  #operation(method: string, path: string): DescribedOperation | undefined {
    const parts = path.replace(/\?.*/, '').replace(/\/$/, '').split('/')
    for (const [template, operations] of this.#paths) {
      const expected = template.split('/')
      const isMatch =
        expected.length === parts.length &&
        expected.every((part, at) => part.startsWith('{') || part === parts[at])
      if (isMatch) return operations[method]
    }
    return undefined
  }
}
