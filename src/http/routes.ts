import { type RequestHandler, Router } from 'express'
import * as z from 'zod'

/** A schema and its name in the OpenAPI document, such as `{ TunnelSpec: TunnelBody }`. */
export type NamedSchema<Value = unknown> = Readonly<Record<string, z.ZodType<Value>>>

/** Documentation of a route. */
export interface Operation {
  readonly id: string
  readonly summary: string
  /** Longer text. Default: the summary and the answers. */
  readonly description?: string
  /** Description of the tag, in one route of each tag. The tag is the first part of the path. */
  readonly about?: string | undefined
  readonly query?: z.ZodObject
  readonly body?: NamedSchema
  readonly hasOptionalBody?: boolean
  /** Whether the answer has an `ETag`. */
  readonly hasEtag?: boolean
  /** Whether the answer has a `Location`, the path of the created resource. */
  readonly hasLocation?: boolean
  /** Whether `If-Match` and `If-None-Match` are supported. */
  readonly obeysConditions?: boolean
  /** By status. An answer without a schema has no body. All errors use the API's error schema. */
  readonly answers: Readonly<
    Record<
      number,
      { readonly means: string; readonly schema?: NamedSchema; readonly mediaType?: string }
    >
  >
  /** Whether it is served without a token. */
  readonly isOpen?: boolean
}

/** Answer of `/openapi.json`. */
export const OpenApiView = z.looseObject({ openapi: z.string() })

/** Methods in the order of the header `Allow`. */
const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const
type Method = (typeof METHODS)[number]

/** One method on one path of an API. Routers and OpenAPI documents are generated from it. */
export type Route = {
  /** Method and path, such as `GET /tunnels/{url_part}`. */
  readonly route: `${Uppercase<Method>} ${string}`
  /** Checks and parsers of the body that run before `handle`. */
  readonly before?: readonly RequestHandler[]
  readonly handle: RequestHandler
  /** An internal route is for our own pages, and not in the OpenAPI document. */
} & (Operation | { readonly isInternal: true })

/** Returns method and path of a route: `get` and `/tunnels/{url_part}`. */
export function placeOf({ route }: Route): { readonly method: Method; readonly path: string } {
  const [method, path = ''] = route.split(' ')
  return { method: method?.toLowerCase() as Method, path }
}

/**
 * Returns a router for the routes, which no other function registers. `others` makes the handler for methods
 * that a path does not support; without it, later handlers get such requests.
 */
export function mountRoutes(
  routes: readonly Route[],
  others?: (...allowed: readonly string[]) => RequestHandler,
): Router {
  const router = Router()
  for (const path of new Set(routes.map((route) => placeOf(route).path))) {
    const mounted = router.route(path.replace(/\{(\w+)\}/g, ':$1'))
    const ofPath = routes.filter((route) => placeOf(route).path === path)
    for (const route of ofPath)
      mounted[placeOf(route).method](...(route.before ?? []), route.handle)
    const allowed = METHODS.filter((it) => ofPath.some((route) => placeOf(route).method === it))
    const names = allowed.flatMap((method) => (method === 'get' ? ['get', 'head'] : [method]))
    if (others) mounted.all(others(...names.map((name) => name.toUpperCase())))
  }
  return router
}
