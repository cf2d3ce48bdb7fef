//! `[tune]` of a study: the search of `wirecost tune` for the best setting, in which the axes are factors.
//! docs/tune.md describes it.

mod goal;
mod runner;
pub mod simulation;
#[cfg(test)]
mod tests;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use wirecost_analyze::tuning::{MOST_FACTORS, Tuning};

use crate::definition::Definition;
use crate::error::StudyError;
use crate::matrix;

pub use goal::{BoundDefinition, Objective};
pub use runner::{TuneEvent, TuneListener, Tuned, replay, run};

/// The level of a factor that sets nothing: the host, or the profile, stays as it is.
pub const KEEP: &str = "keep";

/// What is searched for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TuneDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximize: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimize: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subject_to: Vec<String>,
    /// Most runs; by default as many as suffice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// The lab that stays, in which it runs: a search continues only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<String>,
    /// Factors that were left out, with the reason.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub left_out: IndexMap<String, String>,
}

impl TuneDefinition {
    /// The objective and the bounds, without the factors.
    ///
    /// # Errors
    /// A metric or a bound that there is not.
    pub fn aims(&self) -> Result<(Objective, Vec<BoundDefinition>), StudyError> {
        let objective = match (&self.maximize, &self.minimize) {
            (Some(name), None) => Objective::parse(name, true)?,
            (None, Some(name)) => Objective::parse(name, false)?,
            _ => return Err(StudyError::NoObjective),
        };
        let bounds = self.subject_to.iter().map(|text| BoundDefinition::parse(text));
        Ok((objective, bounds.collect::<Result<_, _>>()?))
    }
}

/// A search, read.
#[derive(Debug, Clone)]
pub struct TuneGoal {
    pub objective: Objective,
    pub bounds: Vec<BoundDefinition>,
    pub tuning: Tuning,
    /// Names of the factors.
    pub factors: Vec<String>,
    /// Of each factor, its levels; the first is that of the base.
    pub levels: Vec<Vec<String>>,
}

/// The search for the best setting of a study, if it is one.
///
/// # Errors
/// A metric or a bound that there is not, factors that are too few or too many or have a single level, and a
/// budget that does not suffice.
pub fn goal(study: &Definition) -> Result<Option<TuneGoal>, StudyError> {
    let Some(definition) = &study.tune else { return Ok(None) };
    let (objective, bounds) = definition.aims()?;
    if study.search.is_some() {
        return Err(StudyError::Searched { name: "tune".to_owned() });
    }
    let factors: Vec<String> = study.axes.keys().cloned().collect();
    let levels: Vec<Vec<String>> = study.axes.values().map(|axis| matrix::labels(axis)).collect();
    if let Some((factor, levels)) = factors.iter().zip(&levels).find(|(_, levels)| levels.len() < 2)
    {
        let level = levels.first().cloned().unwrap_or_default();
        return Err(StudyError::SingleLevel { factor: factor.clone(), level });
    }
    if factors.is_empty() {
        return Err(StudyError::NoFactors);
    }
    if factors.len() > MOST_FACTORS {
        return Err(StudyError::TooManyFactors { factors: factors.len(), limit: MOST_FACTORS });
    }
    let mut tuning = Tuning {
        levels: levels.iter().map(Vec::len).collect(),
        maximize: objective.maximize,
        bounds: bounds.iter().map(|bound| bound.bound).collect(),
        budget: 0,
        seed: study.seed,
    };
    tuning.budget = definition.budget.map_or_else(|| tuning.usual(), |budget| budget as usize);
    if tuning.budget < tuning.least() {
        return Err(StudyError::SmallBudget {
            budget: tuning.budget,
            factors: factors.len(),
            least: tuning.least(),
        });
    }
    Ok(Some(TuneGoal { objective, bounds, tuning, factors, levels }))
}
