import type { SiteProgram } from '../helpers/site.ts'
import type { TrialRow } from '../helpers/trials.ts'
import type { AttackSite } from './attack-site.ts'

/** What a file `*-attack.ts` exports as `attack`. */
export interface Attack {
  readonly name: string
  /** One line for `--help`. */
  readonly what: string
  /** Settings of gateway and agent, beside those of every site. */
  readonly env?: Readonly<Record<string, string>>
  /** How the gateway is started, unless as usual. */
  readonly gateway?: SiteProgram
  /** Attacks a site that is there for it alone, and looks at what others notice. */
  run(site: AttackSite): Promise<readonly TrialRow[]>
}
