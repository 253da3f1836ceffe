import * as z from 'zod'
import { nearest, nearestFirst } from '../../base/nearest.ts'
import { rawUrl, requestOf } from '../exchange/message-head.ts'
import { CONTINUE, type MaybePromise, NO_ERROR, refuse } from '../exchange/outcome.ts'
import type { Price } from '../expression/account.ts'
import { download } from '../outbound/outbound.ts'
import {
  type SignedRequest,
  WEBHOOK_CHALLENGES,
  WEBHOOK_PROVIDERS,
  WEBHOOK_REFUSALS,
} from '../outbound/webhook-signature.ts'
import { SnsVerifier } from '../outbound/webhook-sns.ts'
import { type ActionContext, defineAction } from './action.ts'

/** A body that is larger cannot be verified. */
const MAX_BODY = 1_048_576
/** Price of reading, copying and signing a body. */
const BODY_PRICE: Price = { call: 100, kib: 30 }
/** Signs with a private key: the public one has to be read. */
const SNS = 'sns'
const CERTIFICATE = { what: 'The certificate URL', accept: '*/*' }
/** All that can be verified. */
export const WEBHOOK_NAMES: readonly string[] = [...Object.keys(WEBHOOK_PROVIDERS), SNS].sort()
/** Advice for providers that only hosted services support. */
export const WEBHOOK_ADVICE: ReadonlyMap<string, string> = new Map([
  ['mailchimp', 'its webhooks have no signature, so use a secret part in the URL'],
  ['orbit', 'its signature is no longer documented'],
  ['vmware', 'it sends a name and a password, so use basic-auth'],
  ['vmware_workspace', 'it sends a name and a password, so use basic-auth'],
])
const REFUSAL = refuse(403, 'ERR_NGROK_3204', 'The signature of the webhook is not valid.')

/** Admits only requests that a webhook provider signed. */
export const verifyWebhook = defineAction({
  type: 'verify-webhook',
  phases: ['on_http_request'],
  config: z.strictObject({
    provider: z.string().min(1),
    secret: z.string().min(1).max(4_096),
    enforce: z.boolean().default(true),
  }),
  fields: {
    provider: 'Name of the provider, such as github.',
    secret: 'Secret that the provider signs with. May contain expressions.',
    enforce: 'false: only sets the result verified, and refuses nothing.',
  },
  example: { provider: 'github', secret: 'shared secret', enforce: true },
  results: { verified: 'bool', 'error.code': 'string', 'error.message': 'string' },
  build({ provider, secret: text, enforce }, context) {
    const find = finderOf(provider, context)
    const challenge = ownOf(WEBHOOK_CHALLENGES, provider)
    const refusal = ownOf(WEBHOOK_REFUSALS, provider) ?? REFUSAL
    const secret = context.template(text, ['secret'])
    return async (exchange) => {
      const request = requestOf(exchange)
      const body = await request.readBody(MAX_BODY)
      if (body) exchange.account.pay(BODY_PRICE, [body])
      const signed = body && {
        method: request.method,
        headers: request.headers,
        url: rawUrl(request),
        body,
        secret: secret.render(exchange),
        now: context.clock.now(),
      }
      const failure = signed ? await find?.(signed) : `The body exceeds ${MAX_BODY} bytes.`
      exchange.results.set('verify_webhook', {
        verified: failure === undefined,
        error: failure === undefined ? NO_ERROR : { code: 'ERR_NGROK_3204', message: failure },
      })
      const answer = signed && challenge?.(signed, failure)
      if (answer) return answer
      return failure === undefined || !enforce ? CONTINUE : refusal
    }
  },
})

type FindFailure = (request: SignedRequest) => MaybePromise<string | undefined>

function finderOf(provider: string, context: ActionContext): FindFailure | undefined {
  if (provider === SNS) {
    const { clock, reach } = context
    const read = (url: URL) => download(url, reach, CERTIFICATE)
    const verifier = context.carry(() => new SnsVerifier({ clock, read }))
    return (request) => verifier.findFailure(request)
  }
  const verify = ownOf(WEBHOOK_PROVIDERS, provider)
  if (verify) return verify
  const advice = WEBHOOK_ADVICE.get(provider) ?? adviceFor(provider)
  const sentence = `The provider ${provider} is not available: ${advice}`
  const message = sentence.endsWith('?') ? sentence : `${sentence}.`
  context.problem('notAvailable', ['provider'], message, { isForeign: true })
  return undefined
}

/** Names of providers in a message. */
const MAX_NAMES = 6

function adviceFor(provider: string): string {
  const meant = nearest(provider.toLowerCase(), WEBHOOK_NAMES)
  if (meant !== undefined) return `did you mean ${meant}?`
  const names = nearestFirst(provider, WEBHOOK_NAMES, MAX_NAMES)
  const more = WEBHOOK_NAMES.length - names.length
  return `use ${names.join(', ')} or one of ${more} more, which "Providers of webhooks" in the docs lists`
}

function ownOf<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
