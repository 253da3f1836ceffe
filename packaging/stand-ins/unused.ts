/**
 * Stands in the bundle for parts of libraries that nothing here calls, and that every start would
 * load: Express' readers of bodies with their tables of character sets (`http/json-body.ts` reads
 * bodies, in UTF-8 alone), its second parser of queries, and the tracing of prom-client's own metrics.
 */
function missing(): never {
  throw new Error('this part of a library is not in the program: see packaging/stand-ins')
}

export const json = missing
export const raw = missing
export const text = missing
export const urlencoded = missing
export const parse = missing
