import type { ActionDefinition } from './action.ts'
import { addHeaders } from './add-headers.ts'
import { basicAuth } from './basic-auth.ts'
import { circuitBreaker } from './circuit-breaker.ts'
import { compressResponse } from './compress-response.ts'
import { closeConnection } from './connection/close-connection.ts'
import { terminateTls } from './connection/terminate-tls.ts'
import { customResponse } from './custom-response.ts'
import { deny } from './deny.ts'
import { forwardInternal } from './forward-internal.ts'
import { httpRequest } from './http-request.ts'
import { jwtValidation } from './jwt-validation.ts'
import { log } from './log.ts'
import { oauth } from './oauth.ts'
import { openidConnect } from './openid-connect.ts'
import { rateLimit } from './rate-limit.ts'
import { redirect } from './redirect.ts'
import { removeHeaders } from './remove-headers.ts'
import { requestBodyFindReplace } from './request-body-find-replace.ts'
import { responseBodyFindReplace } from './response-body-find-replace.ts'
import { restrictIps } from './restrict-ips.ts'
import { setVars } from './set-vars.ts'
import { urlRewrite } from './url-rewrite.ts'
import { verifyWebhook } from './verify-webhook.ts'

/** Every action, by the type that documents use. */
export const ACTIONS: ReadonlyMap<string, ActionDefinition> = new Map(
  [
    addHeaders,
    basicAuth,
    circuitBreaker,
    closeConnection,
    compressResponse,
    customResponse,
    deny,
    forwardInternal,
    httpRequest,
    jwtValidation,
    log,
    oauth,
    openidConnect,
    rateLimit,
    redirect,
    removeHeaders,
    requestBodyFindReplace,
    responseBodyFindReplace,
    restrictIps,
    setVars,
    terminateTls,
    urlRewrite,
    verifyWebhook,
  ].map((action) => [action.type, action]),
)

/** Actions that the hosted service has and a gateway on its own cannot, and why. */
export const UNAVAILABLE_ACTIONS: ReadonlyMap<string, string> = new Map([
  ['ai-gateway', 'it needs providers on the public internet'],
  ['owasp-crs-request', 'the rule set is too heavy for a gateway on a small machine'],
  ['owasp-crs-response', 'the rule set is too heavy for a gateway on a small machine'],
  ['saml', 'use openid-connect, which most identity providers support'],
  ['sse-find-replace', 'events are forwarded unchanged; use response-body-find-replace'],
])
