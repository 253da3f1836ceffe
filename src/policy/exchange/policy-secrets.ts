/** A secret as `secrets.get('vault', 'name')` names it. */
export interface SecretName {
  readonly vault: string
  readonly name: string
}

/** Why a policy cannot use a secret. */
export interface SecretProblem {
  readonly message: string
  /** See `PolicyProblem`. */
  readonly isOnlyForNew: boolean
}

/** Secrets for the policy of one endpoint. */
export interface PolicySecrets {
  /** Why the policy cannot use a secret; undefined if it can. */
  problemOf(secret: SecretName): SecretProblem | undefined
  /** The current value; undefined if the policy cannot use the secret now. */
  read(secret: SecretName): string | undefined
}
