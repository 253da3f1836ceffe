import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { type ActionStates, type CompiledRules, Compiler } from './compile.ts'
import { KnownDocuments } from './document/known-documents.ts'
import { atOnce, type Parts, type PolicyReading } from './document/policy-text.ts'
import { PolicyError, type PolicyProblem, ProblemList } from './document/problem.ts'
import { CONTINUE, type MaybePromise, type Outcome } from './exchange/outcome.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import type { PolicySecrets, SecretName } from './exchange/policy-secrets.ts'
import { AMBIGUOUS_PATH, isAmbiguousPath } from './exchange/request-path.ts'
import { FairScheduler, SchedulerMember } from './limit/fair-scheduler.ts'
import { LimiterTables } from './limit/limiter-tables.ts'
import { RateLimiter } from './limit/rate-limiter.ts'
import type { PolicyReach } from './outbound/outbound-allow.ts'
import type { Phase } from './phase.ts'
import { BodyRewriter } from './rewriting/body-rewriter.ts'
import type { PhaseRules } from './run-phase.ts'

/** Characters of a document that are compiled at a stretch: about 1 ms. */
const PART_CHARACTERS = 400

export interface PolicyOptions extends PolicyReach {
  readonly clock: Clock
  readonly log: Logger
  /** Shared by the rate limits of all policies; its own unless given. */
  readonly limits?: LimiterTables | undefined
  /** The replaced policy: counters of unchanged actions are kept. */
  readonly previous?: Pick<CompiledPolicy, 'states'> | undefined
  /** Shared by all policies of a process, so that costly policies wait for each other. */
  readonly lane?: FairScheduler
  /** Shared in the same way, so that one thread is enough. Default: its own. */
  readonly rewriter?: BodyRewriter
  /** Shared in the same way, so that equal documents are parsed once. Default: its own. */
  readonly documents?: KnownDocuments
  /** The source as it was read elsewhere. Undefined: it is read here. */
  readonly reading?: PolicyReading | undefined
  /** A parsed document with rules around those of the document: first in, last out. */
  readonly around?: object | undefined
  /** The policy was accepted before: checks that are only for new policies give warnings. */
  readonly isStored?: boolean | undefined
}

interface PolicyParts extends CompiledRules {
  readonly states: ActionStates
  readonly warnings: readonly PolicyProblem[]
  readonly usedSecrets: readonly SecretName[]
  /** Values of the used secrets. */
  readonly secrets: PolicySecrets | undefined
}

/** A checked document, ready to run. One per endpoint: its counters are the endpoint's own. */
export class CompiledPolicy {
  readonly hasConnectRules: boolean
  readonly hasRequestRules: boolean
  readonly hasResponseRules: boolean
  /** Whether a rule lets visitors sign in. The cookies of the sign-in then never reach a device. */
  readonly hasLogin: boolean
  /** Whether no request reaches an upstream. */
  readonly alwaysEnds: boolean
  /** Warnings for the author about a policy that can run. */
  readonly warnings: readonly PolicyProblem[]
  /** State such as counters, for the policy that replaces this one. */
  readonly states: ActionStates
  /** Secrets in its expressions, whether they are read or not. */
  readonly usedSecrets: readonly SecretName[]
  readonly #secrets: PolicySecrets | undefined
  readonly #phases: Readonly<Record<Phase, PhaseRules>>
  /** The policy reads the path, so ambiguous paths are refused. */
  readonly #guardsPath: boolean

  constructor(parts: PolicyParts) {
    const { phases, allowsAmbiguousPaths, states, warnings, usedSecrets, secrets } = parts
    this.#phases = phases
    this.usedSecrets = usedSecrets
    this.#secrets = usedSecrets.length > 0 ? secrets : undefined
    this.states = states
    this.warnings = warnings
    this.hasConnectRules = !phases.on_tcp_connect.isEmpty
    this.hasRequestRules = !phases.on_http_request.isEmpty
    this.hasResponseRules = !phases.on_http_response.isEmpty
    const { on_http_request: request, on_http_response: response } = phases
    this.#guardsPath = !allowsAmbiguousPaths && (request.readsPath || response.readsPath)
    this.hasLogin = request.has('openid-connect') || request.has('oauth')
    this.alwaysEnds = phases.on_tcp_connect.alwaysEnds || phases.on_http_request.alwaysEnds
  }

  /** Whether a rule of a phase has an action of this type. */
  has(phase: Phase, action: string): boolean {
    return this.#phases[phase].has(action)
  }

  /** The URLs that rules of a phase hand on to, as far as they are the same for all. */
  forwardUrls(phase: Phase): string[] {
    return this.#phases[phase].forwardUrls
  }

  /** Problems for which a new policy would be refused. Only a stored policy has any. */
  get refusedToday(): PolicyProblem[] {
    return this.warnings.filter(({ severity }) => severity === 'error')
  }

  /** Its rate limits as they are now. */
  get limiters(): RateLimiter[] {
    return [...this.states.values()].filter((state) => state instanceof RateLimiter)
  }

  /** Runs the rules of `on_tcp_connect`; the outcome is `continue`, `close` or `forward`. */
  onTcpConnect(exchange: PolicyExchange): MaybePromise<Outcome> {
    return this.hasConnectRules ? this.#run('on_tcp_connect', exchange) : CONTINUE
  }

  /** Runs the rules of `on_http_request`. Synchronous unless an action has to wait. Never throws. */
  onHttpRequest(exchange: PolicyExchange): MaybePromise<Outcome> {
    if (this.#guardsPath && exchange.request) {
      if (isAmbiguousPath(exchange.request.target)) return AMBIGUOUS_PATH
      exchange.guardsPath = true
    }
    return this.hasRequestRules ? this.#run('on_http_request', exchange) : CONTINUE
  }

  /** Runs the rules of `on_http_response`; `exchange.response` is set. Never throws. */
  onHttpResponse(exchange: PolicyExchange): MaybePromise<Outcome> {
    return this.hasResponseRules ? this.#run('on_http_response', exchange) : CONTINUE
  }

  #run(phase: Phase, exchange: PolicyExchange): MaybePromise<Outcome> {
    exchange.secrets = this.#secrets
    return this.#phases[phase].run(exchange)
  }
}

/**
 * Compiles a document (JSON or YAML text, or the parsed value; null has no rules).
 * Throws PolicyError with every problem at once.
 */
export function compilePolicy(source: unknown, options: PolicyOptions): CompiledPolicy {
  return atOnce(policyInParts(source, options, false))
}

/** The same in parts, so that a long document does not block other work. */
export async function compilePolicyInTurns(
  source: unknown,
  options: PolicyOptions & { readonly lane: FairScheduler },
): Promise<CompiledPolicy> {
  const parts = policyInParts(source, options, true)
  const member = new SchedulerMember(options.lane, 'long')
  let characters = 0
  let part = parts.next()
  while (!part.done) {
    characters += part.value
    if (characters >= PART_CHARACTERS) {
      characters = 0
      part = await member.inTurn(() => parts.next())
    } else {
      part = parts.next()
    }
  }
  return part.value
}

function* policyInParts(
  source: unknown,
  options: PolicyOptions,
  isRun: boolean,
): Parts<CompiledPolicy> {
  const problems = new ProblemList()
  const {
    clock,
    log,
    limits = new LimiterTables({ clock, log }),
    previous,
    lane = new FairScheduler(),
    rewriter = new BodyRewriter(),
    documents = new KnownDocuments(),
    reading,
    around,
    isStored = false,
    ...reach
  } = options
  const compiler = new Compiler(
    {
      ...{ clock, log, reach, limits, previous: previous?.states, lane },
      ...{ rewriter, documents, reading, isRun },
    },
    problems,
  )
  const rules = yield* compiler.compile(source, around)
  const isRefused = isStored ? problems.stopsStored : problems.hasErrors
  if (isRefused) {
    throw new PolicyError(problems.all.filter((it) => !(isStored && it.isOnlyForNew)))
  }
  const { states, secrets: usedSecrets } = compiler
  const { secrets } = reach
  return new CompiledPolicy({ ...rules, states, usedSecrets, secrets, warnings: problems.all })
}
